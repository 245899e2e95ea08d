"""A stream on one thread: what share of a core it takes, how late it is, and whether its memory stays the same.

    python benchmarks/live.py [--model small-live] [--packet-ms 80] [--seconds 60] [--loopback]

--loopback sends packets over UDP on this machine in real time, and measures the time from a sample that goes in to the
same sample coming out, computing included.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import threading
import time
from collections.abc import Callable

import numpy as np
import torch

from dtm_codec import DTMCodec
from dtm_codec.live.latency import latency_of
from dtm_codec.models.hub import LIVE_MODEL
from dtm_codec.speech.audio import read_audio, sample_path


def shares(codec: DTMCodec, audio: np.ndarray, bitrate: float, packet_ms: int) -> dict[str, float]:
    """Seconds of work per second of speech, and the process's memory after each quarter."""
    encoder = codec.stream_encoder(bitrate=bitrate, packet_ms=packet_ms)
    decoder = codec.stream_decoder(encoder.start)
    spent = {"encode": 0.0, "decode": 0.0}
    slowest = {"encode": 0.0, "decode": 0.0}
    memory, quarter = [], audio.size // 4
    sent = 0

    def timed(what: str, work: Callable[[], object]) -> object:
        start = time.process_time()
        result = work()
        elapsed = time.process_time() - start
        spent[what] += elapsed
        slowest[what] = max(slowest[what], elapsed)
        return result

    for begin in range(0, audio.size, 320):  # 20 ms, as a sound card gives them
        piece = audio[begin : begin + 320]
        for packet in timed("encode", lambda piece=piece: encoder.push(piece)):  # type: ignore[misc, attr-defined]
            sent += len(packet)
            timed("decode", lambda packet=packet: decoder.push(packet))  # type: ignore[misc]
        if begin // quarter != (begin + 320) // quarter:
            memory.append(_resident_mb())
    seconds = audio.size / 16_000
    return {
        "seconds": seconds,
        "encode_share": round(spent["encode"] / seconds, 4),
        "decode_share": round(spent["decode"] / seconds, 4),
        "slowest_push_ms": round(1000 * max(slowest.values()), 1),
        "bps_with_packet_headers": round(8 * sent / seconds),
        "resident_mb_by_quarter": memory,  # type: ignore[dict-item]
    }


def _resident_mb() -> float:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - not a file on a disk
        return round(int(file.read().split()[1]) * resource.getpagesize() / 1e6, 1)


def loopback(codec: DTMCodec, audio: np.ndarray, bitrate: float, packet_ms: int) -> dict[str, float]:
    """Speak in real time over UDP; how much later than spoken is each sample there?"""
    encoder = codec.stream_encoder(bitrate=bitrate, packet_ms=packet_ms)
    delays: list[float] = []
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        address = receiver.getsockname()
        begin = time.perf_counter()

        def listen() -> None:
            decoder, played = codec.stream_decoder(encoder.start), 0
            while data := receiver.recv(512):
                first, samples = played, decoder.push(data)
                played += samples.size
                if samples.size:  # the oldest sample of those that came has waited longest
                    delays.append(time.perf_counter() - begin - first / 16_000)

        listener = threading.Thread(target=listen)
        listener.start()
        for start in range(0, audio.size, 320):
            spoken = (start + 320) / 16_000
            time.sleep(max(0.0, begin + spoken - time.perf_counter()))
            for packet in encoder.push(audio[start : start + 320]):
                sender.sendto(packet, address)
        sender.sendto(b"", address)
        listener.join()
    late = 1000 * np.array(delays)
    return {
        "algorithmic_ms": latency_of(codec.config).total + packet_ms,
        "median_ms": round(float(np.median(late)), 1),
        "95_percent_ms": round(float(np.percentile(late, 95)), 1),
        "worst_ms": round(float(late.max()), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=LIVE_MODEL)
    parser.add_argument("--bitrate", type=float, default=800)
    parser.add_argument("--packet-ms", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--loopback", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    codec = DTMCodec.from_pretrained(options.model)
    audio = np.resize(read_audio(sample_path(), codec.config.sample_rate)[0], round(options.seconds * 16_000))
    measure = loopback if options.loopback else shares
    print(json.dumps(measure(codec, audio, options.bitrate, options.packet_ms), indent=2))


if __name__ == "__main__":
    main()
