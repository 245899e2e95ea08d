"""Feeds hostile files to the `.dtm` reader for a while and reports what happened.

    python benchmarks/bitstream_fuzz.py --seconds 600                  # mutations of sound files
    python benchmarks/bitstream_fuzz.py --seconds 600 --engine atheris # guided by coverage (pip install atheris)

Every input is tried as it is and again with a checksum that fits, so that damage reaches the decoders. An escape is
anything but `BitstreamError` or an utterance that is written as just these bytes. Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import FunctionType

import numpy as np

from dtm_codec.bitstream import container
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.encoded import Encoded, Layout
from dtm_codec.errors import BitstreamError

STATISTICS = TokenModel.from_counts(np.arange(1, 17), np.arange(1, 10).reshape(3, 3) ** 2, np.arange(16) % 3)
ROOM = "dtm_codec.bitstream"
MAX_LENGTH = 4096
TRACED = 500
"""Every so many inputs, allocations are traced, which is slow."""


def seal(content: bytes) -> bytes:
    """With a checksum that fits, also the statistics if the tokens are range coded."""
    fingerprint = STATISTICS.fingerprint if content[3:] and content[3] & 2 else 0
    return content + (zlib.crc32(content) ^ fingerprint).to_bytes(4, "big")


def sound_files() -> list[bytes]:
    """Each combination of rate, mode and length."""
    generator = np.random.default_rng(0)
    files = []
    for steps in (1, 2, 5, 9, 24, 61, 200):
        for layout in (Layout(16_000, 160, 4, None), Layout(12_345, 77, 4, 3), Layout(48_000, 480, 14, None)):
            mask = np.arange(steps) % 3 == 0 if steps % 2 else generator.random(steps) < 0.4
            mask[0] = True
            mask = mask if layout.stride is None else layout.fixed_mask(steps)
            codes = generator.integers(4, size=int(mask.sum()))
            encoded = Encoded(codes, mask, steps * layout.hop_length, "fuzz.s-50:00ff00ff", layout)
            statistics = STATISTICS if layout.token_bits == STATISTICS.token_bits else None
            forms = (("raw", None), ("compact", None), ("compact", statistics))
            files += [encoded.to_bytes(mode, model) for mode, model in forms]  # type: ignore[arg-type]
    return [data for data in dict.fromkeys(files) if len(data) <= MAX_LENGTH]


@dataclass
class Tally:
    """What happened so far."""

    seconds: float
    engine: str
    start: float = field(default_factory=time.perf_counter)
    start_rss: int = field(default_factory=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    inputs: int = 0
    sound: int = 0
    escapes: list[str] = field(default_factory=list)
    slowest_ms: float = 0.0
    slowest_input: bytes = b""
    peak_kib: float = 0.0

    def over(self) -> bool:
        return time.perf_counter() - self.start > self.seconds

    def report(self) -> dict[str, object]:
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "engine": self.engine,
            "inputs": self.inputs,
            "sound_files_among_them": self.sound,
            "escapes": len(self.escapes),
            "first_escapes": self.escapes[:5],
            "seconds": round(time.perf_counter() - self.start, 1),
            "slowest_ms": round(self.slowest_ms, 2),
            "slowest_input_bytes": len(self.slowest_input),
            "slowest_input": self.slowest_input[:64].hex(),
            "peak_allocation_kib_of_traced_inputs": round(self.peak_kib, 1),
            "process_growth_kib": rss - self.start_rss,
        }

    def check(self, data: bytes) -> None:
        """One input."""
        traced = self.inputs % TRACED == 0
        if traced:
            tracemalloc.start()
        start = time.perf_counter()
        try:
            self.sound += self._try(data)
        except Exception as error:  # the very thing this program looks for
            self.escapes.append(f"{type(error).__name__}: {error}: {data.hex()}")
        elapsed = 1000 * (time.perf_counter() - start)
        if traced:
            self.peak_kib = max(self.peak_kib, tracemalloc.get_traced_memory()[1] / 1024)
            tracemalloc.stop()
        elif elapsed > self.slowest_ms and (elapsed := self._processor_ms(data)) > self.slowest_ms:
            self.slowest_ms, self.slowest_input = elapsed, data
        self.inputs += 1

    def _processor_ms(self, data: bytes) -> float:
        """Once more, without the pauses that other processes cause; asking for this time is slow."""
        start = time.process_time()
        with suppress(Exception):
            self._try(data)
        return 1000 * (time.process_time() - start)

    @staticmethod
    def _try(data: bytes) -> bool:
        try:
            container.inspect(data)
        except BitstreamError:
            inspected = False
        else:
            inspected = True
        try:
            encoded = Encoded.from_bytes(data, STATISTICS)
        except BitstreamError:
            return False
        forms = [("raw", None), ("compact", None)]
        if encoded.layout.token_bits == STATISTICS.token_bits:
            forms.append(("compact", STATISTICS))
        if not inspected:
            raise AssertionError("read, but not inspected")
        if data not in [encoded.to_bytes(mode, model) for mode, model in forms]:  # type: ignore[arg-type]
            raise AssertionError("read, but not written so")
        return True


def mutate(data: bytes, seeds: list[bytes], choose: random.Random) -> bytes:
    """A few changes of the kinds that break parsers: bits, bytes, lengths, numbers in the header, splices."""
    out = bytearray(data)
    for _ in range(choose.choice((1, 1, 2, 4, 8))):
        place = choose.randrange(len(out) + 1) if choose.random() < 0.5 else choose.randrange(min(len(out), 24) + 1)
        match choose.randrange(7):
            case 0 if place < len(out):
                out[place] ^= 1 << choose.randrange(8)
            case 1 if place < len(out):
                out[place] = choose.choice((0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)))
            case 2:
                del out[place : place + choose.randrange(1, 9)]
            case 3:
                out[place:place] = choose.randbytes(choose.randrange(1, 9))
            case 4:
                out[place : place + choose.randrange(8)] = b"\xff" * choose.randrange(1, 7)
            case 5:
                other = choose.choice(seeds)[:-4]
                out[place:] = other[choose.randrange(len(other)) :]
            case _:
                del out[place:]
    return bytes(out[:MAX_LENGTH])


def run_mutations(tally: Tally, seeds: list[bytes]) -> None:
    choose = random.Random(0)
    while not tally.over():
        content = mutate(choose.choice(seeds)[:-4], seeds, choose)
        tally.check(content + choose.choice(seeds)[-4:])
        tally.check(seal(content))


def functions(namespace: object) -> Iterator[FunctionType]:
    """The room's own functions and methods."""
    for value in vars(namespace).values():
        value = getattr(value, "__func__", value)
        if not getattr(value, "__module__", "").startswith(ROOM):
            continue
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type):
            yield from functions(value)


def run_atheris(tally: Tally, seeds: list[bytes], finish: Callable[[], None]) -> None:
    """Never returns: libFuzzer owns the process."""
    import tempfile
    from pathlib import Path

    import atheris

    for function in {f for name in list(sys.modules) if name.startswith(ROOM) for f in functions(sys.modules[name])}:
        atheris.instrument_func(function)

    def one_input(data: bytes) -> None:
        tally.check(data)
        tally.check(seal(data))
        if tally.over():
            finish()

    with tempfile.TemporaryDirectory() as corpus:
        for index, seed in enumerate(seeds):
            (Path(corpus) / str(index)).write_bytes(seed[:-4])
        arguments = [sys.argv[0], f"-max_len={MAX_LENGTH}", "-verbosity=0", "-seed=1", corpus]
        atheris.Setup(arguments, one_input)
        atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long to try")
    parser.add_argument("--engine", choices=("mutations", "atheris"), default="mutations")
    options = parser.parse_args()
    seeds = sound_files()
    tally = Tally(options.seconds, options.engine)

    def finish() -> None:
        print(json.dumps(tally.report(), indent=2), flush=True)
        os._exit(1 if tally.escapes else 0)

    for seed in seeds:
        tally.check(seed)
    assert tally.sound == len(seeds)
    if options.engine == "atheris":
        run_atheris(tally, seeds, finish)
    else:
        run_mutations(tally, seeds)
    finish()


if __name__ == "__main__":
    main()
