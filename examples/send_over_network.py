"""For an engineer: speech to bytes, over a network, and back to speech.

    python examples/send_over_network.py [AUDIO] [-b 800] [-o received.wav]

The sender needs 100 bytes a second at 800 bps. The bytes say how long they are and carry a checksum, so damage in
transit is found. Here both ends are threads of one process that talk over TCP on this machine.
"""

from __future__ import annotations

import argparse
import socket
import threading
from pathlib import Path

from dtm_codec import DTMCodec
from dtm_codec.speech.audio import read_audio, sample_path, write_audio


def send(codec: DTMCodec, audio: Path, bitrate: float, address: tuple[str, int]) -> None:
    samples, sample_rate = read_audio(audio)
    data = codec.to_bytes(codec.encode(samples, sample_rate, bitrate=bitrate))
    with socket.create_connection(address) as connection:
        connection.sendall(data)
    print(f"sent {len(data)} bytes for {samples.size / sample_rate:.2f} s of speech")


def receive(codec: DTMCodec, server: socket.socket, output: Path) -> None:
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as stream:
        encoded = codec.from_bytes(stream.read())
    write_audio(output, codec.decode(encoded), codec.config.sample_rate)
    print(f"received {encoded.tokens.size} tokens, wrote {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", nargs="?", type=Path, default=sample_path())
    parser.add_argument("-b", "--bitrate", type=float, default=800)
    parser.add_argument("-o", "--output", type=Path, default=Path("received.wav"))
    options = parser.parse_args()
    codec = DTMCodec.from_pretrained()
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=send, args=(codec, options.audio, options.bitrate, server.getsockname()))
        sender.start()
        receive(codec, server, options.output)
        sender.join()


if __name__ == "__main__":
    main()
