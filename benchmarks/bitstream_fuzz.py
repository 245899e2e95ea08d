"""Feeds hostile files to the `.dtm` reader, and hostile packets to that of streams, and reports what happened.

    python benchmarks/bitstream_fuzz.py --files 10000000               # forged from sound files
    python benchmarks/bitstream_fuzz.py --seconds 600 --seed 7
    python benchmarks/bitstream_fuzz.py --files 1000000 --engine packets
    python benchmarks/bitstream_fuzz.py --seconds 600 --engine atheris # guided by coverage (pip install atheris)

Forged files have a checksum that fits, so that they reach the decoders: headers with other numbers, payloads with other
bits, headers of one file on payloads of another, and files of version 1; so have packets and starts of streams. An
escape is anything but `BitstreamError` or content that is written as just these bytes. Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import sys
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import FunctionType

import numpy as np

from dtm_codec.bitstream import container
from dtm_codec.bitstream.header import Header
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.encoded import Encoded
from dtm_codec.errors import BitstreamError
from dtm_codec.layout import Layout
from dtm_codec.live.packets import HEADER_BYTES, StreamFormat

STATISTICS = TokenModel.from_counts(np.arange(1, 17), np.arange(1, 10).reshape(3, 3) ** 2, np.arange(16) % 3)
FORMS = (
    StreamFormat("fuzz.s-50:00ff00ff", Layout(16_000, 160, 14, None), 8),
    StreamFormat("fuzz.s-50:00ff00ff", Layout(16_000, 160, 4, None), 32),
    StreamFormat("fuzz.f-50:00ff00ff", Layout(12_345, 77, 4, 3), 6),
)
"""Streams that packets are forged for."""
ROOM = "dtm_codec.bitstream"
MAX_LENGTH = 4096
TRACED = 5000
"""Every so many inputs, allocations are traced, which is slow."""
UNSEALED = 8
"""One in so many keeps a checksum that does not fit."""


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
    files: float
    engine: str
    attempt: Callable[[bytes], tuple[bool, bool]]
    """Whether the checks on the outside were passed, and whether all was taken."""
    start: float = field(default_factory=time.perf_counter)
    start_rss: int = field(default_factory=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    inputs: int = 0
    reached: int = 0
    """Inputs whose checksum and header were taken, so that mask and tokens were looked at."""
    sound: int = 0
    forged: Counter[str] = field(default_factory=Counter)
    escapes: list[str] = field(default_factory=list)
    slowest_ms: float = 0.0
    slowest_input: bytes = b""
    peak_kib: float = 0.0

    def over(self) -> bool:
        return self.inputs >= self.files or time.perf_counter() - self.start > self.seconds

    def report(self) -> dict[str, object]:
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "engine": self.engine,
            "inputs": self.inputs,
            "inputs_a_second": round(self.inputs / (time.perf_counter() - self.start)),
            "reached_the_decoders": self.reached,
            "forged": dict(self.forged),
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
            reached, sound = self.attempt(data)
            self.reached, self.sound = self.reached + reached, self.sound + sound
        except Exception as error:  # the very thing this program looks for
            self.escapes.append(f"{type(error).__name__}: {error}: {data.hex()}")
        elapsed = 1000 * (time.perf_counter() - start)
        if traced:
            self.peak_kib = max(self.peak_kib, tracemalloc.get_traced_memory()[1] / 1024)
            tracemalloc.stop()
        elif elapsed > 1.5 * self.slowest_ms and (elapsed := self._processor_ms(data)) > self.slowest_ms:
            self.slowest_ms, self.slowest_input = elapsed, data
        self.inputs += 1

    def _processor_ms(self, data: bytes) -> float:
        """Once more, without the pauses that other processes cause; asking for this time is slow."""
        start = time.process_time()
        with suppress(Exception):
            self.attempt(data)
        return 1000 * (time.process_time() - start)


def read_file(data: bytes) -> tuple[bool, bool]:
    """Whether the header was taken, and whether all of it was."""
    try:
        container.read_header(data)
    except BitstreamError:
        with suppress(BitstreamError):
            Encoded.from_bytes(data, STATISTICS)
            raise AssertionError("read, but its header was not") from None
        return False, False
    try:
        container.inspect(data)
    except BitstreamError:
        inspected = False
    else:
        inspected = True
    try:
        encoded = Encoded.from_bytes(data, STATISTICS)
    except BitstreamError:
        return True, False
    if not inspected:
        raise AssertionError("read, but not inspected")
    forms = [("raw", None), ("compact", None)]
    if encoded.layout.token_bits == STATISTICS.token_bits:
        forms.append(("compact", STATISTICS))
    if all(encoded.to_bytes(mode, model) != data for mode, model in forms):  # type: ignore[arg-type]
        raise AssertionError("read, but not written so")
    return True, True


def read_packet(data: bytes) -> tuple[bool, bool]:
    """The first byte says which stream it comes in, or that it is a start."""
    number, data = data[0] % (len(FORMS) + 1), data[1:]
    try:
        if number == len(FORMS):
            written = StreamFormat.from_start(data).start
        else:
            written = FORMS[number].write(FORMS[number].read(data))
    except BitstreamError as error:
        return "check" not in str(error) and "damaged" not in str(error), False
    if written != data:
        raise AssertionError("read, but not written so")
    return True, True


@dataclass(frozen=True)
class Seed:
    """A sound file, taken apart."""

    header: Header
    start: bytes
    payload: bytes

    @classmethod
    def of(cls, data: bytes) -> Seed:
        header = container.read_header(data)
        length = len(header.to_bytes())
        return cls(header, data[:length], data[length:-4])


def forge(seeds: list[Seed], choose: random.Random) -> tuple[str, bytes]:
    """What was done, and the content of a file without its checksum."""
    seed = choose.choice(seeds)
    kind = choose.choices(("payload", "header", "splice", "anything", "version"), (45, 20, 15, 15, 5))[0]
    match kind:
        case "payload":
            return kind, seed.start + mutate(seed.payload, [other.payload for other in choose.sample(seeds, 2)], choose)
        case "header":
            return kind, _other_header(seed.header, choose) + seed.payload
        case "splice":
            other = choose.choice(seeds).payload
            cut = choose.randrange(len(seed.payload) + 1)
            return kind, seed.start + choose.choice((other, seed.payload[:cut] + other[cut:]))
        case "anything":
            others = [other.start + other.payload for other in choose.sample(seeds, 2)]
            return kind, mutate(seed.start + seed.payload, others, choose)
        case _:  # version 1 had two bytes less of the model's fingerprint; nobody has written the others
            content = seed.start + seed.payload
            version = choose.choice((1, 1, 1, 0, 3, 15)) << 4 | content[3] & 0xF
            return kind, content[:3] + bytes([version]) + content[4:10] + content[choose.choice((10, 12)) :]


def _other_header(header: Header, choose: random.Random) -> bytes:
    """With one number changed, within the limits or beyond."""
    layout, near = header.layout, choose.choice((-8, -1, 1, 8))
    far = choose.choice((1, 255, 1 << 12, 1 << 20, (1 << 24) * layout.hop_length))
    change = choose.randrange(6)
    try:
        if change == 0:
            return replace(
                header, num_samples=choose.choice((header.num_samples + near * layout.hop_length, far))
            ).to_bytes()
        if change == 1 and header.mask_bytes is not None:
            return replace(header, mask_bytes=max(0, choose.choice((header.mask_bytes + near, far)))).to_bytes()
        if change == 2:
            return replace(header, layout=replace(layout, token_bits=choose.randrange(1, 25))).to_bytes()
        if change == 3:
            return replace(header, layout=replace(layout, hop_length=choose.choice((1, 4, 161, 65_535)))).to_bytes()
        if change == 4:
            stride = None if layout.stride else choose.randrange(1, 256)
            return replace(header, layout=replace(layout, stride=stride), mask_bytes=None).to_bytes()
        coded = None if header.mask_bytes is not None or layout.stride else choose.randrange(40)
        return replace(header, mask_bytes=coded, tokens_coded=not header.tokens_coded).to_bytes()
    except BitstreamError:  # beyond the limits: the bytes of it all the same
        start = bytearray(header.to_bytes())
        start[16 + choose.randrange(len(start) - 16)] ^= 1 << choose.randrange(8)
        return bytes(start)


def mutate(data: bytes, others: list[bytes], choose: random.Random) -> bytes:
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
                other = choose.choice(others)
                out[place:] = other[choose.randrange(len(other) + 1) :]
            case _:
                del out[place:]
    return bytes(out[:MAX_LENGTH])


def run_forgeries(tally: Tally, files: list[bytes], seed: int) -> None:
    choose = random.Random(seed)
    seeds = [Seed.of(data) for data in files]
    while not tally.over():
        kind, content = forge(seeds, choose)
        content = content[:MAX_LENGTH]
        if choose.randrange(UNSEALED):
            tally.check(seal(content))
        else:
            kind = "checksum"
            tally.check(content + choose.choice(files)[-4:])
        tally.forged[kind] += 1


def sound_packets() -> list[bytes]:
    """Packets of each stream, and their starts, behind the byte that `read_packet` wants."""
    draw = np.random.default_rng(0)
    found = []
    for number, form in enumerate(FORMS):
        for steps in (1, form.steps, 3 * form.steps - 1):
            stride = form.layout.stride
            mask = draw.random(steps) < 0.5 if stride is None else form.layout.fixed_mask(steps)
            codes = draw.integers(1 << form.layout.token_bits, size=int(mask.sum()))
            packets = form.split(mask, codes, steps * form.layout.hop_length)
            found += [bytes([number]) + form.write(packet) for packet in packets]
        found.append(bytes([len(FORMS)]) + form.start)
    return found


def seal_packet(data: bytes) -> bytes:
    """With a check that fits the stream, whatever is inside."""
    number, data = data[0], data[1:]
    if number == len(FORMS):
        content = data[:-4]
        return bytes([number]) + content + zlib.crc32(content).to_bytes(4, "big")
    head, payload = data[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0"), data[HEADER_BYTES:]
    flags = int.from_bytes(head, "big") >> 8 & 0xFFF0
    sealed = flags << 8 | FORMS[number]._check(flags, payload)
    return bytes([number]) + sealed.to_bytes(HEADER_BYTES, "big") + payload


def run_packets(tally: Tally, packets: list[bytes], seed: int) -> None:
    choose = random.Random(seed)
    while not tally.over():
        packet = choose.choice(packets)
        data = packet[:1] + mutate(packet[1:], [other[1:] for other in choose.sample(packets, 2)], choose)
        if choose.randrange(UNSEALED):
            data = seal_packet(data)
        tally.check(data)
        tally.forged["start" if packet[0] == len(FORMS) else "packet"] += 1


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
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long to try")
    parser.add_argument("--files", type=float, default=math.inf, help="how many to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("forgeries", "packets", "atheris"), default="forgeries")
    options = parser.parse_args()
    if options.seconds == options.files == math.inf:
        options.seconds = 60
    of_streams = options.engine == "packets"
    seeds = sound_packets() if of_streams else sound_files()
    tally = Tally(options.seconds, options.files, options.engine, read_packet if of_streams else read_file)

    def finish() -> None:
        print(json.dumps(tally.report(), indent=2), flush=True)
        os._exit(1 if tally.escapes else 0)

    for seed in seeds:
        tally.check(seed)
    assert tally.sound == len(seeds)
    if options.engine == "atheris":
        run_atheris(tally, seeds, finish)
    elif of_streams:
        run_packets(tally, seeds, options.seed)
    else:
        run_forgeries(tally, seeds, options.seed)
    finish()


if __name__ == "__main__":
    main()
