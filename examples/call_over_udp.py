"""For an engineer: speech while it is being spoken, over UDP, with packets that get lost.

    python examples/call_over_udp.py [AUDIO] [-b 800] [--loss 10] [-o heard.wav]

The recording is spoken in real time, 20 ms after 20 ms. Both ends are threads of one process on this machine; every
packet is lost with the same chance. In a real call, `encoder.start` goes to the other end before the first packet, over
a connection that loses nothing.
"""

from __future__ import annotations

import argparse
import random
import socket
import threading
import time
from pathlib import Path

import numpy as np

from dtm_codec import DTMCodec
from dtm_codec.speech.audio import read_audio, sample_path, write_audio

END = b"end"  # every packet is longer


def speak(codec: DTMCodec, audio: Path, bitrate: float, loss: float, there: tuple[str, int]) -> None:
    samples, sample_rate = read_audio(audio)
    encoder = codec.stream_encoder(bitrate=bitrate, sample_rate=sample_rate)
    block, line, sent, lost = sample_rate // 50, random.Random(0), 0, 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:

        def send(packets: list[bytes]) -> None:
            nonlocal sent, lost
            for packet in packets:
                sent += 1
                if line.random() < loss:
                    lost += 1
                else:
                    wire.sendto(packet, there)

        begin = time.perf_counter()
        for first in range(0, samples.size, block):
            time.sleep(max(0.0, begin + (first + block) / sample_rate - time.perf_counter()))
            send(encoder.push(samples[first : first + block]))
        send(encoder.flush())
        wire.sendto(END, there)
    print(f"sent {sent} packets for {samples.size / sample_rate:.2f} s of speech, {lost} of them got lost")


def listen(codec: DTMCodec, start: bytes, wire: socket.socket, output: Path) -> None:
    decoder = codec.stream_decoder(start)
    heard = []
    while (data := wire.recv(512)) != END:
        heard.append(decoder.push(data))  # here they would go to a sound card
    heard.append(decoder.flush())
    write_audio(output, np.concatenate(heard), codec.config.sample_rate)
    print(f"heard {decoder.received} packets, filled in {decoder.given_up}, wrote {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", nargs="?", type=Path, default=sample_path())
    parser.add_argument("-b", "--bitrate", type=float, default=800)
    parser.add_argument("--loss", type=float, default=10, help="percent of packets")
    parser.add_argument("-o", "--output", type=Path, default=Path("heard.wav"))
    options = parser.parse_args()
    codec = DTMCodec.from_pretrained("small-live")
    start = codec.stream_encoder(bitrate=options.bitrate).start
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(("127.0.0.1", 0))
        arguments = (codec, options.audio, options.bitrate, options.loss / 100, wire.getsockname())
        speaker = threading.Thread(target=speak, args=arguments)
        speaker.start()
        listen(codec, start, wire, options.output)
        speaker.join()


if __name__ == "__main__":
    main()
