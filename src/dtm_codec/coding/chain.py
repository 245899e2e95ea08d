"""Eq. 1 on utterances of any lengths, in pieces: memory does not grow with length, and the result is that of the whole.

Utterances come as sounds that are read block by block, laid end to end without padding. Encoding looks at a sound
twice: tau may depend on all of it, so z1 is needed once for the selector and again for Stage 2. The first `Z1_KEPT`
bytes of it are held, and what does not fit is computed again. What grows with length is a few bytes a step:
statistics of the selector, mask, codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ..backends.base import Backend, Codes, Floats, Mask, Positions, Pulses
from ..config import MAX_STRIDE, QUANTIZED_AT_ONCE, CodecConfig, SelectorFeatures, Stack
from ..errors import AudioError
from ..speech.audio import Samples
from .grouping import grouped
from .overlap import OverlapAdd
from .pieces import RowQueue, Rows, in_pieces, starts_of
from .selection import Statistics

Sound: TypeAlias = Callable[[], Iterable[Samples]]
"""Gives a signal in blocks, from its start, as often as it is called."""

BLOCK = 1024
"""Steps that front end and head see at a time. Their spectra take ten times the memory of the network's rows."""

Z1_KEPT = 256 << 20
"""Bytes of z1 that are held: 45 minutes at 100 steps a second and 256 numbers a step."""


def _through(backend: Backend, stack: Stack, blocks: Iterable[Rows], before: int = 0) -> Iterator[Rows]:
    reach = backend.config.reach(stack)
    return in_pieces(lambda x, positions: backend.stack(stack, x, positions), reach, blocks, backend.piece, before)


class Stage1:
    """z1 of a few utterances: once as it is computed, then again from what was held."""

    def __init__(self, backend: Backend, sounds: Sequence[Sound], steps: int) -> None:
        """steps: how many there will be, as far as is known. If there are more, these are computed again."""
        self.backend, self.sounds = backend, sounds
        self.num_samples = [0] * len(sounds)
        """Of each utterance, once all of z1 was computed."""
        piece, dim = backend.piece, backend.config.dim
        pieces = min(-(-steps // piece), max(1, Z1_KEPT // (4 * piece * dim)))
        self._held = np.empty((pieces * piece, dim), np.float32)
        self._total = 0

    def compute(self, look_at_spectrum: Callable[[Floats, Positions], None] | None = None) -> Iterator[Rows]:
        """z1 in pieces. look_at_spectrum: gets log-mel features (S, bands) and positions (S,) on the way"""
        self._total = 0
        for rows in _through(self.backend, "enc1", self._front_end(0, look_at_spectrum)):
            free = self._held[self._total :]
            free[: len(rows.values)] = rows.values[: len(free)]
            self._total += len(rows.values)
            yield rows

    def show(
        self,
        features: SelectorFeatures,
        statistics: Statistics,
        on_steps: Callable[[int], None] = lambda steps: None,
    ) -> None:
        """Compute z1, and let a selector look at it or at the spectra. on_steps: gets the number of steps so far"""
        for rows in self.compute(statistics.add if features == "logmel" else None):
            if features == "z1":
                statistics.add(*rows)
            on_steps(self._total)

    def again(self) -> Iterator[Floats]:
        """z1 in pieces once more. -> (S, D) each"""
        piece, held = self.backend.piece, min(self._total, len(self._held))
        yield from (self._held[start : min(start + piece, held)] for start in range(0, held, piece))
        if self._total > held:
            begin = max(0, held - self.backend.config.reach("enc1"))
            for z1, _ in _through(self.backend, "enc1", self._front_end(begin), before=held - begin):
                held += len(z1)
                if held <= self._total:
                    yield z1
        if held != self._total:
            raise AudioError(f"the audio had {self._total} steps at first and {held} when it was read again")

    def _front_end(self, begin: int, look: Callable[[Floats, Positions], None] | None = None) -> Iterator[Rows]:
        """What Enc1 sees of the steps from `begin` on; with more than one utterance that is 0."""
        blocks = (block for index in range(len(self.sounds)) for block in self._frames(index, begin))
        for group in grouped(blocks, lambda block: block.positions.size, BLOCK):
            frames, positions = group[0] if len(group) == 1 else map(np.concatenate, zip(*group, strict=True))
            if look is not None:
                look(self.backend.log_mel(frames), positions)
            yield Rows(self.backend.front_end(frames), positions)

    def _frames(self, index: int, begin: int) -> Iterator[Rows]:
        """Frames of an utterance as `frame_signal` cuts the whole."""
        n_fft, hop = self.backend.config.n_fft, self.backend.config.hop_length
        padding = (n_fft - hop) // 2
        held, size, at = np.zeros(padding, np.float32), 0, 0

        def cut() -> Iterator[Rows]:
            nonlocal held, at
            if held.size >= n_fft:
                frames = sliding_window_view(held, n_fft)[::hop]  # a view: overlapping frames take no memory
                skipped = min(max(0, begin - at), len(frames))
                if skipped < len(frames):
                    yield Rows(frames[skipped:], np.arange(at + skipped, at + len(frames)))
                at += len(frames)
                held = held[len(frames) * hop :]

        for block in self.sounds[index]():
            for start in range(0, block.size, BLOCK * hop):
                part = block[start : start + BLOCK * hop]
                size += part.size
                held = np.concatenate([held, part])
                yield from cut()
        held = np.pad(held, (0, -size % hop + padding))
        yield from cut()
        self.num_samples[index] = size


def stage2(backend: Backend, z1: Iterable[Floats], mask: Mask, lengths: Sequence[int]) -> Iterator[Floats]:
    """z2 of the kept steps, in pieces. z1: (S, D) each, mask: (sum N,); lengths: N of each utterance"""
    for z2, _ in _through(backend, "enc2", _kept(backend, z1, mask, lengths)):
        yield z2


def quantize(backend: Backend, z1: Iterable[Floats], mask: Mask, lengths: Sequence[int]) -> Iterator[Codes]:
    """Codes of the kept steps, in pieces; arguments as for `stage2`."""
    for z2 in stage2(backend, z1, mask, lengths):
        for start in range(0, len(z2), QUANTIZED_AT_ONCE):
            yield backend.quantize(z2[start : start + QUANTIZED_AT_ONCE])


def _positions(lengths: Sequence[int]) -> Positions:
    """0, 1, 2, ... of each utterance."""
    return np.concatenate([np.arange(length) for length in lengths])


def _kept_positions(config: CodecConfig, mask: Mask, lengths: Sequence[int]) -> Positions:
    """Where Stage 2 sees the kept steps: at their times, or at their ranks."""
    if config.stage2_positions == "time":
        return _positions(lengths)[mask]
    return _positions([int(own.sum()) for own in np.split(mask, np.cumsum(lengths)[:-1])])


def _kept(backend: Backend, z1: Iterable[Floats], mask: Mask, lengths: Sequence[int]) -> Iterator[Rows]:
    """z1_kept, with the positions that Stage 2 sees."""
    positions = _kept_positions(backend.config, mask, lengths)
    start = tokens = 0
    waiting: Floats | None = None  # steps of a segment whose end has not come
    for rows in z1:
        stop = start + len(rows)
        own = mask[start - (0 if waiting is None else len(waiting)) : stop]
        if backend.whole_segments:
            joined = rows if waiting is None else np.concatenate([waiting, rows])
            complete = len(joined) if stop == len(mask) else int(np.flatnonzero(own)[-1])
            rows, waiting, own = joined[:complete], joined[complete:].copy(), own[:complete]
        kept = int(own.sum())
        if kept:
            yield Rows(backend.downsample(rows, own), positions[tokens : tokens + kept])
        start, tokens = stop, tokens + kept


def synthesize(backend: Backend, codes: Codes, mask: Mask, lengths: Sequence[int]) -> Iterator[tuple[int, Samples]]:
    """Speech block by block: the utterance's index, and samples (S,); N hop in all for each.

    codes: (sum K,), mask: (sum N,); lengths: N of each utterance
    """
    config = backend.config
    joiner, utterance, pulses = OverlapAdd(config.n_fft, config.hop_length), -1, None
    for y, positions in _through(backend, "dec2", _upsampled(backend, codes, mask, lengths)):
        for begin in range(0, len(y), BLOCK):
            block, own = y[begin : begin + BLOCK], positions[begin : begin + BLOCK]
            hertz = backend.pitch(block)
            if hertz is not None:
                pulses = following(hertz, own, config.hop_length / config.sample_rate, pulses)
            starts = starts_of(own)
            parts = np.split(backend.head(block, own, pulses), starts)
            for part, part_positions in zip(parts, np.split(own, starts), strict=True):
                if part_positions[0] == 0:
                    if utterance >= 0:
                        yield utterance, joiner.finish()
                    utterance += 1
                yield utterance, joiner.add(part)
    yield utterance, joiner.finish()


def following(
    hertz: npt.NDArray[np.float64], positions: Positions, seconds: float, before: Pulses | None = None
) -> Pulses:
    """Pulses of a pitch over frames `seconds` apart, as `nn/pitch.py` adds them up. They start anew at every position
    0, and go on from the end of `before` otherwise. hertz, positions: (S,)"""
    previous = hertz[:1] if before is None else before.hertz[-1:]
    turned = np.cumsum(np.pi * seconds * (hertz + np.concatenate([previous, hertz[:-1]])))
    earlier = turned[0] if before is None else -before.phase[-1]
    starts = np.maximum.accumulate(np.where(positions == 0, turned, -np.inf))
    return Pulses(hertz, (turned - np.where(np.isinf(starts), earlier, starts)) % (2 * np.pi))


def _upsampled(backend: Backend, codes: Codes, mask: Mask, lengths: Sequence[int]) -> Iterator[Rows]:
    """z1_hat of all steps."""
    positions, kept = _positions(lengths), _kept_positions(backend.config, mask, lengths)
    z2_hat = (
        Rows(backend.dequantize(codes[start : start + BLOCK]), kept[start : start + BLOCK])
        for start in range(0, codes.size, BLOCK)
    )
    h = RowQueue(_through(backend, "dec1", z2_hat))
    last, began = np.empty((0, backend.config.dim), np.float32), 0  # h of the segment that runs on, and its start
    for start in range(0, mask.size, BLOCK):
        own = mask[start : start + BLOCK]
        rows = h.take(int(own.sum()))
        # A block that begins within a segment is upsampled with as much of it as can matter.
        lead = 0 if own[0] else min(start - began, MAX_STRIDE)
        if lead:
            own = np.pad(own, (lead, 0))
            own[0] = True
            rows = np.concatenate([last, rows])
        yield Rows(backend.upsample(rows, own)[lead:], positions[start : start + BLOCK])
        last = rows[-1:].copy()
        if own[lead:].any():
            began = start + int(np.flatnonzero(own[lead:])[-1])
