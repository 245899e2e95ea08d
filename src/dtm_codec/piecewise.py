"""Eq. 1 on utterances of any lengths, in pieces: memory does not grow with length, and the result is that of the whole.

Utterances come as sounds that are read block by block, laid end to end without padding. Encoding looks at a sound
twice: tau may depend on all of it, so z1 is needed once for the selector and again for Stage 2. The first `Z1_KEPT`
bytes of it are held, and what does not fit is computed again. What grows with length is a few bytes a step:
statistics of the selector, mask, codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from .config import MAX_STRIDE, SelectorFeatures
from .errors import AudioError
from .grouping import grouped
from .network import Network
from .nn.pieces import RowQueue, Rows, in_pieces
from .nn.pitch import Pulses
from .nn.spectral import OverlapAdd
from .nn.timeline import Timeline
from .selectors import Selector
from .speech.audio import Samples

Sound: TypeAlias = Callable[[], Iterable[Samples]]
"""Gives a signal in blocks, from its start, as often as it is called."""

BLOCK = 1024
"""Steps that front end and head see at a time. Their spectra take ten times the memory of the network's rows."""

Z1_KEPT = 256 << 20
"""Bytes of z1 that are held: 45 minutes at 100 steps a second and 256 numbers a step."""


class Stage1:
    """z1 of a few utterances: once as it is computed, then again from what was held."""

    def __init__(self, network: Network, sounds: Sequence[Sound], steps: int) -> None:
        """steps: how many there will be, as far as is known. If there are more, these are computed again."""
        self.network, self.sounds = network, sounds
        self.num_samples = [0] * len(sounds)
        """Of each utterance, once all of z1 was computed."""
        piece = network.piece
        pieces = min(-(-steps // piece), max(1, Z1_KEPT // (4 * piece * network.config.dim)))
        self._held = torch.empty(pieces * piece, network.config.dim, device=network.tau.device)
        self._total = 0

    def compute(self, look_at_spectrum: Callable[[Tensor, Tensor], None] | None = None) -> Iterator[Rows]:
        """z1 in pieces. look_at_spectrum: gets log-mel features (S, bands) and positions (S,) on the way"""
        self._total = 0
        for rows in in_pieces(self.network.enc1, self._front_end(0, look_at_spectrum), self.network.piece):
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

    def again(self) -> Iterator[Tensor]:
        """z1 in pieces once more. -> (S, D) each"""
        piece, held = self.network.piece, min(self._total, len(self._held))
        yield from (self._held[start : min(start + piece, held)] for start in range(0, held, piece))
        if self._total > held:
            begin = max(0, held - self.network.enc1.reach)
            for z1, _ in in_pieces(self.network.enc1, self._front_end(begin), piece, before=held - begin):
                held += len(z1)
                if held <= self._total:
                    yield z1
        if held != self._total:
            raise AudioError(f"the audio had {self._total} steps at first and {held} when it was read again")

    def _front_end(self, begin: int, look: Callable[[Tensor, Tensor], None] | None = None) -> Iterator[Rows]:
        """What Enc1 sees of the steps from `begin` on; with more than one utterance that is 0."""
        front_end = self.network.front_end
        blocks = (block for index in range(len(self.sounds)) for block in self._frames(index, begin))
        for group in grouped(blocks, lambda block: block.positions.numel(), BLOCK):
            frames, positions = group[0] if len(group) == 1 else Rows(*map(torch.cat, zip(*group, strict=True)))
            spectrum = front_end.spectrum(frames)
            if look is not None:
                look(self.network.log_mel(spectrum), positions)
            yield Rows(front_end(spectrum, frames), positions)

    def _frames(self, index: int, begin: int) -> Iterator[Rows]:
        """Frames of an utterance as `frame_signal` cuts the whole."""
        n_fft, hop, device = self.network.config.n_fft, self.network.config.hop_length, self.network.tau.device
        padding = (n_fft - hop) // 2
        held, size, at = torch.zeros(padding, device=device), 0, 0

        def cut() -> Iterator[Rows]:
            nonlocal held, at
            if held.numel() >= n_fft:
                frames = held.unfold(0, n_fft, hop)  # a view: overlapping frames take no memory
                skipped = min(max(0, begin - at), len(frames))
                if skipped < len(frames):
                    yield Rows(frames[skipped:], torch.arange(at + skipped, at + len(frames), device=device))
                at += len(frames)
                held = held[len(frames) * hop :]

        for block in self.sounds[index]():
            for part in torch.split(torch.from_numpy(block), BLOCK * hop):
                size += part.numel()
                held = torch.cat([held, part.to(device)])
                yield from cut()
        held = F.pad(held, (0, -size % hop + padding))
        yield from cut()
        self.num_samples[index] = size


class Statistics:
    """What a selector decides on, of utterances whose features come in pieces."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self._starts: list[int] = []
        self._before: Tensor | None = None
        self._values: Tensor | None = None
        self._filled = 0

    def add(self, features: Tensor, positions: Tensor) -> None:
        """features: (S, F), positions: (S,)"""
        lengths = list(Timeline.of(positions).lengths)
        for own, own_positions in zip(torch.split(features, lengths), torch.split(positions, lengths), strict=True):
            if own_positions[0] == 0:
                self._starts.append(self._filled)
                self._before = own[:0]
            assert self._before is not None
            joined = torch.cat([self._before, own])
            self._append(self.selector.statistics(joined)[len(self._before) :])
            self._before = joined[max(0, len(joined) - self.selector.context) :].clone()

    def _append(self, values: Tensor) -> None:
        end = self._filled + len(values)
        if self._values is None or end > len(self._values):
            grown = values.new_empty(max(1 << 16, 2 * end), values.shape[1])  # doubled, to be copied seldom
            if self._values is not None:
                grown[: self._filled] = self._values[: self._filled]
            self._values = grown
        self._values[self._filled : end] = values
        self._filled = end

    def of_utterances(self) -> list[Tensor]:
        """(N, C) each."""
        assert self._values is not None
        ends = [*self._starts[1:], self._filled]
        return [self._values[start:end] for start, end in zip(self._starts, ends, strict=True)]


def stage2(network: Network, z1: Iterable[Tensor], mask: Tensor, lengths: tuple[int, ...]) -> Iterator[Tensor]:
    """z2 of the kept steps, in pieces. z1: (S, D) each, mask: (sum N,); lengths: N of each utterance"""
    for z2, _ in in_pieces(network.enc2, _kept(network, z1, mask, lengths), network.piece):
        yield z2


def quantize(network: Network, z1: Iterable[Tensor], mask: Tensor, lengths: tuple[int, ...]) -> Iterator[Tensor]:
    """Codes of the kept steps, in pieces; arguments as for `stage2`."""
    for z2 in stage2(network, z1, mask, lengths):
        yield network.quantizer.encode(z2)


def _kept(network: Network, z1: Iterable[Tensor], mask: Tensor, lengths: tuple[int, ...]) -> Iterator[Rows]:
    """z1_kept, with the positions that Stage 2 sees."""
    positions = network.kept(Timeline.consecutive(lengths, mask.device), mask).positions
    start = tokens = 0
    waiting: Tensor | None = None  # steps of a segment whose end has not come
    for rows in z1:
        stop = start + len(rows)
        first = start - (0 if waiting is None else len(waiting))
        own = mask[first:stop]
        if network.down.whole_segments:
            joined = rows if waiting is None else torch.cat([waiting, rows])
            complete = len(joined) if stop == len(mask) else int(own.nonzero()[-1])
            rows, waiting, own = joined[:complete], joined[complete:].clone(), own[:complete]
        kept = int(own.sum())
        if kept:
            yield Rows(network.down(rows, own), positions[tokens : tokens + kept])
        start, tokens = stop, tokens + kept


def synthesize(network: Network, codes: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Iterator[tuple[int, Tensor]]:
    """Speech block by block: the utterance's index, and samples (S,); N hop in all for each.

    codes: (sum K,), mask: (sum N,); lengths: N of each utterance
    """
    state: Pulses | None = None
    joiner, utterance = OverlapAdd(network.head.window, network.config.hop_length), -1
    for y, positions in in_pieces(network.dec2, _upsampled(network, codes, mask, lengths), network.piece):
        for block, own in zip(torch.split(y, BLOCK), torch.split(positions, BLOCK), strict=True):
            frames, _, state = network.head(block, own, state=state)
            parts = list(Timeline.of(own).lengths)
            for part, part_positions in zip(torch.split(frames, parts), torch.split(own, parts), strict=True):
                if part_positions[0] == 0:
                    if utterance >= 0:
                        yield utterance, joiner.finish()
                    utterance += 1
                yield utterance, joiner.add(part)
    yield utterance, joiner.finish()


def _upsampled(network: Network, codes: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Iterator[Rows]:
    """z1_hat of all steps."""
    timeline = Timeline.consecutive(lengths, mask.device)
    kept = network.kept(timeline, mask).positions
    z2_hat = (
        Rows(network.quantizer.decode(codes[start : start + BLOCK]), kept[start : start + BLOCK])
        for start in range(0, codes.numel(), BLOCK)
    )
    h = RowQueue(in_pieces(network.dec1, z2_hat, network.piece))
    last, began = torch.empty(0, device=mask.device), 0  # h of the segment that runs on, and where it began
    for start in range(0, mask.numel(), BLOCK):
        own = mask[start : start + BLOCK]
        rows = h.take(int(own.sum()))
        # A block that begins within a segment is upsampled with as much of it as can matter.
        lead = 0 if own[0] else min(start - began, MAX_STRIDE)
        if lead:
            own = F.pad(own, (lead, 0))
            own[0] = True
            rows = torch.cat([last, rows])
        yield Rows(network.up(rows, own)[lead:], timeline.positions[start : start + BLOCK])
        last = rows[-1:].clone()
        if own[lead:].any():
            began = start + int(own[lead:].nonzero()[-1])
