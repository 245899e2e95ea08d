"""Effort: a search for better codes through the decoder, as video encoders search.

The encoder's codes are a guess in one pass. The search tries others by decoding them: in each round every token gets
one other code to try, a near neighbour down the gradient of the distance to the original. Tokens far enough apart are
tried in one decoding, and a token keeps its new code if the speech around it came near enough to the original to be
worth the move. The distance is what the decoder was trained with: mel spectra and pitch. Mask, weights and file format
stay as they are.

As in training, a source-filter head follows the pitch of the original meanwhile, and its own is judged by the cross
entropy. Otherwise every pitch that changes would move all pulses after it, and where a predicted pitch is a little off,
noise would seem nearer to the original than harmonics beside the true ones.

The search depends on the utterance alone: neither on what is encoded beside it, nor on the pieces that the network
computes in. Long audio is searched in windows from left to right, each with fixed codes around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..backends.base import Codes, Mask
from ..network import Network
from ..nn.mel_distance import MultiScaleMelDistance
from ..nn.pitch_tracking import PitchTracker, pitch_distance, pitch_loss
from ..nn.resampling import segment_of
from ..nn.timeline import Timeline
from ..speech.audio import Samples

APART = 6
"""Every sixth token gets another code in one decoding, so that what is heard around a token is its own doing."""
REACH = 3
"""Steps before and after a token's segment in which it is judged."""
STRIDE = 0.3
"""How far down the gradient other codes are looked for: in `small`, the nearest code is 0.29 away on average."""
MOVE_COST = 0.15
"""What a code must bring per step and squared distance from the encoder's choice. Without it, twice as many codes
change for nothing more in PESQ and STOI, and speech sounds less natural (docs/experiments.md)."""
MEL_WINDOWS = (256, 512, 1024, 2048)
"""Samples. Shorter ones hear single pulses, whose places are not sent."""
PITCH_WEIGHT = 0.3

WINDOW = 1024
"""Steps searched at a time: 10 s at 100 Hz. The backward pass holds all their activations."""
CONTEXT = 128
"""Steps with fixed codes decoded on either side of a window. The decoder reaches further, but little of it is heard."""
HEARD = 32
"""Steps of the context in which changes are heard too."""


class Refiner:
    """Tries `rounds` other codes for every token of an utterance."""

    def __init__(self, network: Network, rounds: int) -> None:
        self.network, self.rounds = network, rounds
        config, device = network.config, network.tau.device
        self.mel = MultiScaleMelDistance(config.sample_rate, MEL_WINDOWS).to(device)
        self.tracker = PitchTracker(config).to(device) if config.head == "source-filter" else None
        self.vectors = network.quantizer.vectors().detach()
        self._on_searched: Callable[[int], None] = lambda steps: None

    def watch(self, steps: int, on_progress: Callable[[float], None]) -> None:
        """Report the share that is done of utterances with so many steps in all."""
        done = 0

        def add(searched: int) -> None:
            nonlocal done
            done += searched
            on_progress(min(1.0, done / (steps * self.rounds)))  # a rate as written may take a second search

        self._on_searched = add

    @torch.inference_mode(False)  # autograd refuses tensors that were made in it
    @torch.no_grad()
    def better_codes(self, signal: Samples, codes: Codes, mask: Mask) -> Codes:
        """signal: (T,), codes: (K,), mask: (N,) -> (K,)"""
        total, hop = mask.size, self.network.config.hop_length
        device = self.network.tau.device
        audio, own_codes, own_mask = (torch.tensor(x, device=device) for x in (signal, codes, mask))
        utterance = _Utterance(F.pad(audio, (0, total * hop - signal.size)), own_codes, own_mask)
        for start, stop in _cut(total):
            searched = partial(self._on_searched, stop - start)
            utterance.codes = _Window(self, utterance, start, stop).search(searched)
        found: Codes = utterance.codes.cpu().numpy()
        return found


def _cut(total: int) -> Iterator[tuple[int, int]]:
    """Windows of about equal size."""
    count = -(-total // WINDOW)
    return pairwise(total * i // count for i in range(count + 1))


class _Utterance:
    def __init__(self, audio: Tensor, codes: Tensor, mask: Tensor) -> None:
        """audio: (N hop,), codes: (K,), mask: (N,)"""
        self.audio, self.codes, self.mask = audio, codes, mask
        self.starts, self.segments = mask.nonzero().squeeze(1), segment_of(mask)
        self.stops = torch.cat([self.starts[1:], self.starts.new_tensor([mask.numel()])])


class _Heard(NamedTuple):
    audio: Tensor
    """(1, T)"""
    pitch_logits: Tensor | None


class _Window:
    """Steps start ... stop - 1 of an utterance, with their surroundings."""

    def __init__(self, refiner: Refiner, utterance: _Utterance, start: int, stop: int) -> None:
        self.refiner, self.network, self.utterance = refiner, refiner.network, utterance
        starts, segments, mask = utterance.starts, utterance.segments, utterance.mask
        device = mask.device
        low, end = max(0, start - CONTEXT), min(mask.numel(), stop + CONTEXT)
        begin = max(int(starts[segments[low]]), low - CONTEXT)  # whole segments, unless one is very long
        first, last = int(segments[begin]), int(segments[end - 1]) + 1
        self.tokens = slice(first, last)
        bounds = torch.searchsorted(starts, torch.tensor([start, stop], device=device)).tolist()
        self.free = torch.arange(*bounds, device=device)
        self.mask = mask[begin:end].clone()
        self.mask[0] = True  # of a very long segment, the part in here
        self.timeline = Timeline((end - begin,), torch.arange(begin, end, device=device))
        by_rank = self.network.config.stage2_positions == "rank"
        times = torch.arange(first, last, device=device) if by_rank else starts[self.tokens]
        self.kept = Timeline((last - first,), times)
        hear_from, hear_to = max(begin, start - HEARD), min(end, stop + HEARD)
        self.heard = slice(hear_from - begin, hear_to - begin)
        hop = self.network.config.hop_length
        original = utterance.audio[hear_from * hop : hear_to * hop]
        self.padding = (0, max(0, max(MEL_WINDOWS) - original.numel()))
        self.log_mels = refiner.mel.log_mels(F.pad(original, self.padding)[None])
        self.pitch = None if refiner.tracker is None else refiner.tracker(original[None])
        self.judged_from = (starts - hear_from - REACH).clamp(min=0)
        self.judged_to = (utterance.stops - hear_from + REACH).clamp(max=hear_to - hear_from)

    def search(self, on_round: Callable[[], None]) -> Tensor:
        """Codes of the whole utterance, in this window the best that were heard. -> (K,)"""
        codes = self.utterance.codes.clone()
        tries = torch.zeros_like(codes)
        best, least = codes.clone(), torch.inf
        for _ in range(self.refiner.rounds):
            if self.free.numel() > 0:  # not so within a long silence
                points = self.refiner.vectors[codes[self.tokens]].requires_grad_()
                with torch.enable_grad():
                    heard = self._decode(points)
                    distance = self._distance(heard)
                (gradient,) = torch.autograd.grad(distance, points)
                if distance < least:
                    best, least = codes.clone(), float(distance)
                self._try_others(codes, tries, gradient, heard)
            on_round()
        last = self._distance(self._decode(self.refiner.vectors[codes[self.tokens]]))
        return codes if last < least else best

    def _try_others(self, codes: Tensor, tries: Tensor, gradient: Tensor, heard: _Heard) -> None:
        """One other code for every token; those that are worth it go into `codes`.

        tries: (K,) codes that each token has tried in vain; gradient: (tokens, d); heard: what `codes` sound like
        """
        present = self._distances(heard)
        for offset in range(APART):
            some = self.free[offset::APART]
            if some.numel() == 0:
                continue
            others = self._candidates(codes[some], gradient[some - self.tokens.start], tries[some])
            trial = codes.clone()
            trial[some] = others
            distances = self._distances(self._decode(self.refiner.vectors[trial[self.tokens]]))
            change = F.pad((distances - present).double().cumsum(0), (1, 0))
            low, high = self.judged_from[some], self.judged_to[some]
            cost = MOVE_COST * (self._moved(some, others) - self._moved(some, codes[some])) * (high - low)
            worth = change[high] - change[low] + cost < 0
            codes[some] = torch.where(worth, others, codes[some])
            tries[some] = torch.where(worth, 0, tries[some] + 1)
            within = torch.zeros_like(change).index_add(0, low, worth.double()).index_add(0, high, -worth.double())
            present = torch.where(within.cumsum(0)[:-1] > 0, distances, present)

    def _moved(self, some: Tensor, codes: Tensor) -> Tensor:
        """Squared distance of codes from what the encoder chose for some tokens. -> (S,)"""
        vectors = self.refiner.vectors
        return (vectors[codes] - vectors[self.utterance.codes[some]]).square().sum(-1)

    def _candidates(self, codes: Tensor, gradient: Tensor, tries: Tensor) -> Tensor:
        """The code nearest to a point down the gradient; after each try in vain, the next nearest. -> (S,)"""
        vectors = self.refiner.vectors
        points = vectors[codes] - STRIDE * F.normalize(gradient, dim=-1)
        nearness = points @ vectors.T - vectors.square().sum(-1) / 2
        nearness.scatter_(1, codes[:, None], -torch.inf)
        nearest = nearness.topk(min(int(tries.max()) + 1, vectors.shape[0] - 1)).indices
        return nearest.gather(1, tries[:, None].clamp(max=nearest.shape[1] - 1)).squeeze(1)

    def _decode(self, points: Tensor) -> _Heard:
        """What the tokens of the window sound like. points: (K, d)"""
        network = self.network
        h = network.dec1(network.quantizer.project_out(points), self.kept)
        y = network.dec2(network.up(h, self.mask), self.timeline)[self.heard]
        pitch = None if self.pitch is None else self.pitch.hertz.flatten()
        frames, pitch_logits, _ = network.head(y, self.timeline.positions[self.heard], pitch)
        return _Heard(network.head.synthesize(frames[None]), pitch_logits)

    def _distance(self, heard: _Heard) -> Tensor:
        """From the original, a scalar with gradient."""
        distance = self.refiner.mel.between(F.pad(heard.audio, self.padding), self.log_mels)
        if heard.pitch_logits is not None and self.pitch is not None:
            distance = distance + PITCH_WEIGHT * pitch_loss(heard.pitch_logits, self.pitch)
        return distance

    def _distances(self, heard: _Heard) -> Tensor:
        """The same of each step. -> (N,)"""
        steps, hop = self.heard.stop - self.heard.start, self.network.config.hop_length
        distances = self.refiner.mel.over_time(F.pad(heard.audio, self.padding), self.log_mels, hop)[:steps]
        if heard.pitch_logits is not None and self.pitch is not None:
            distances = distances + PITCH_WEIGHT * pitch_distance(heard.pitch_logits, self.pitch)
        return distances
