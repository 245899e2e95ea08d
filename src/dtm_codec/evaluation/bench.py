"""Speed and memory of codecs in one interleaved run, one thread (`dtm-codec bench`).

Every round times each system once, so that a machine that slows down slows all of them; ratios are taken within a
round. Memory is the peak of a fresh process for each system and length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from ..metrics.base import SAMPLE_RATE
from ..speech.audio import Samples, read_audio, sample_path
from ..system.workers import run_in_processes
from . import systems
from .diagnostics import SelectorClock
from .systems.ours import DTM, use_selector
from .tables import Block, Cell, Column, Group

DEFAULT_SYSTEMS = (
    "dtm:random:vfr-50",
    "dtm:random:s-vfr-50",
    "encodec:1.5?model=random",
    "mimi:8?model=random",
    "dac:12?model=random",
    "snac:24?model=random",
)
"""Random weights will do for speed."""


@dataclass(frozen=True)
class Timing:
    title: str
    parameters: int | None
    bps: float | None
    encode_rtf: float
    """CPU seconds per second of speech, median over rounds."""
    decode_rtf: float
    elapsed_rtf: float
    """Seconds on the clock per second of speech, for both."""
    encode_ratio: float
    """Time over that of the first system, median over rounds."""
    decode_ratio: float
    selector_share: float | None
    """Per cent of encoding."""
    peak_mb: dict[float, float]
    """Seconds of speech -> peak resident memory of a fresh process."""


def speech(seconds: float) -> Samples:
    audio, _ = read_audio(sample_path(), SAMPLE_RATE)
    return np.resize(audio, round(seconds * SAMPLE_RATE)).astype(np.float32)


def bench(
    names: Sequence[str],
    seconds: float = 10.0,
    rounds: int = 5,
    memory_seconds: Sequence[float] = (10.0, 60.0),
    progress: Callable[[int, int], None] | None = None,
) -> list[Timing]:
    """Time all systems in turns, `rounds` times after a warm-up, then measure their memory."""
    audio = speech(seconds)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    total = len(names) * (rounds + 1 + len(memory_seconds))
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    built = [systems.build(name) for name in names]
    for system in built:
        if isinstance(system, DTM):
            use_selector(system.codec, system.selector)  # where the clock can see it
            system.codec.backend.use_threads(1)
    clocks = [SelectorClock(s.codec.backend.selector) if isinstance(s, DTM) else None for s in built]
    times, elapsed = np.zeros((rounds, len(built), 2)), np.zeros((rounds, len(built)))
    shares = np.zeros((rounds, len(built)))
    bps: list[float | None] = [None] * len(built)
    try:
        for number in range(-1, rounds):  # the first is the warm-up
            for index, (system, clock) in enumerate(zip(built, clocks, strict=True)):
                if clock:
                    clock.reset()
                began, start = system.elapsed(), system.clock()
                coded = system.encode(audio)
                middle = system.clock()
                system.decode(coded)
                end = system.clock()
                calibrating, choosing = (clock.calibrating, clock.choosing) if clock else (0.0, 0.0)
                if number >= 0:
                    elapsed[number, index] = system.elapsed() - began
                    times[number, index] = middle - start - calibrating, end - middle
                    shares[number, index] = 100 * choosing / (middle - start - calibrating)
                bps[index] = coded.bits.total / coded.duration_s if coded.bits else None
                step()
    finally:
        torch.set_num_threads(threads)
    ratios = np.median(times / times[:, :1], axis=0)
    medians = np.median(times, axis=0) / seconds
    timings = []
    for index, (name, system) in enumerate(zip(names, built, strict=True)):
        peaks = {}
        for length in memory_seconds:
            peaks[length] = _peak_memory(name, length)
            step()
        share = float(np.median(shares[:, index])) if clocks[index] else None
        (encode_rtf, decode_rtf), (encode_ratio, decode_ratio) = medians[index].tolist(), ratios[index].tolist()
        timings.append(
            Timing(
                system.title,
                system.parameters,
                bps[index],
                encode_rtf,
                decode_rtf,
                float(np.median(elapsed[:, index])) / seconds,
                encode_ratio,
                decode_ratio,
                share,
                peaks,
            )
        )
    return timings


def _peak_memory(name: str, seconds: float) -> float:
    (peak,) = run_in_processes(partial(_MemoryMeter, name), [seconds], 1)
    return peak


class _MemoryMeter:
    """Peak resident memory in MB after one encode and decode in a fresh process."""

    def __init__(self, name: str) -> None:
        self.system = systems.build(name)

    def __call__(self, seconds: float) -> float:
        self.system.decode(self.system.encode(speech(seconds)))
        return self.system.peak_mb()


def bench_block(timings: Sequence[Timing], seconds: float) -> Block:
    """Timings as a table; ratios are to its first row."""
    lengths = list(timings[0].peak_mb)
    columns = [
        *map(Column, ("System", "Parameters", "bps")),
        *(Column(text, None, False) for text in ("Encode RTF", "Decode RTF", "Both, on the clock")),
        *map(Column, ("Encode, ratio", "Decode, ratio", "Selector share (%)")),
        *(Column(f"Peak MB, {length:g} s", None, False) for length in lengths),
    ]
    if len(lengths) > 1:
        columns.append(Column("MB a minute", None, False))

    def row(timing: Timing) -> tuple[Cell, ...]:
        times = timing.encode_rtf, timing.decode_rtf, timing.elapsed_rtf
        peaks = [timing.peak_mb[length] for length in lengths]
        growth = [(peaks[-1] - peaks[0]) / (lengths[-1] - lengths[0]) * 60] if len(lengths) > 1 else []
        return (
            Cell(timing.title),
            Cell(f"{timing.parameters / 1e6:.1f} M" if timing.parameters else "–"),
            Cell() if timing.bps is None else Cell(f"{timing.bps:.0f}"),
            *(Cell(f"{value:.4f}", value=value) for value in times),
            *(Cell(f"{value:.2f} ×") for value in (timing.encode_ratio, timing.decode_ratio)),
            Cell("–" if timing.selector_share is None else f"{timing.selector_share:.2f}"),
            *(Cell(f"{value:.0f}", value=value) for value in (*peaks, *growth)),
        )

    note = f"{seconds:g} s of speech, one thread if not said otherwise, all systems in turns"
    note += "; RTF: CPU seconds per second of speech"
    note += "; in a browser, those of the page's workers" if any("Chromium" in t.title for t in timings) else ""
    title = f"Speed and memory, ratios to {timings[0].title}"
    return Block(title, tuple(columns), (Group(None, tuple(map(row, timings))),), notes=(note,)).marked()
