"""The selector protocol: features in, keep mask out (paper Sections 3.2 and 3.3).

A selector works in two steps, so that one analysis of an utterance serves any number of rates, and long
audio can be analysed piece by piece:

* `statistics` reduces features to what the decision needs, a few numbers a frame for the linear-time selectors.
  It looks back at most `context` frames, so the statistics of a long utterance are those of its pieces, joined.
* `keep` decides, given one positive number `tau`. The larger tau, the fewer frames are kept, for every selector:
  what tau measures is each selector's own (path length, distance threshold, price of a segment, mean span).

Selectors that weigh all pairs or all segmentations of an utterance would need time or memory beyond
linear; they decide in blocks of at most `block` frames.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from ..config import SelectorConfig
from ..errors import RateError

PIECE = 512
"""Frames analysed at a time."""


class Selector(ABC):
    """Chooses the frames to keep. The first frame of every utterance is always kept."""

    name: ClassVar[str]
    tau_means: ClassVar[str]
    """What tau measures, for help texts."""
    block: ClassVar[int | None] = None
    """Longest stretch decided as a whole, in frames; None if any length is."""
    context: int = 0
    """Frames before a piece that its statistics need."""

    def __init__(self, s_max: int | None = None) -> None:
        self.s_max = s_max
        """Longest span of one kept frame."""

    @classmethod
    def from_config(cls, config: SelectorConfig) -> Selector:
        return cls(s_max=config.s_max)

    def statistics(self, features: Tensor) -> Tensor:
        """What `keep` needs. features: (..., N, D) -> (..., N, C), row t from rows t - context ... t.

        The rows before the start count as absent; a caller with a piece prepends `context` rows and drops theirs.
        This method does so itself, in short pieces: what they compute on the way fits into the processor's cache.
        """
        pieces = []
        for start in range(0, features.shape[-2], PIECE):
            before = min(start, self.context)
            piece = features[..., start - before : start + PIECE, :].detach().float()
            pieces.append(self._analyse(piece)[..., before:, :])
        return torch.cat(pieces, dim=-2)

    @abstractmethod
    def _analyse(self, features: Tensor) -> Tensor:
        """`statistics` of a short piece. features: (..., N, D) float32 -> (..., N, C)."""

    def keep(self, statistics: Tensor, tau: float) -> Tensor:
        """Keep mask of whole utterances. statistics: (..., N, C) -> (..., N) bool, True = kept, on the same device."""
        if not (math.isfinite(tau) and tau > 0):
            raise RateError(f"tau = {tau}; allowed: > 0 ({self.tau_means})")
        return self._bounded(self._decide(statistics, tau))

    @abstractmethod
    def _decide(self, statistics: Tensor, tau: float) -> Tensor:
        """`keep` for a valid tau, without the first frame and the span cap."""

    def _bounded(self, mask: Tensor) -> Tensor:
        """With the first frame kept and no span above s_max. mask: (..., N) bool."""
        mask[..., 0] = True
        return mask if self.s_max is None else cap_spans(mask, self.s_max)

    def select(self, features: Tensor, lengths: list[int], tau: float, training: bool = False) -> Tensor:
        """Keep mask of a packed batch. features: (sum N, D) -> (sum N,) bool.

        training: a selector that draws at random draws anew; the others decide as always.
        """
        if len(set(lengths)) == 1:  # crops of one length are decided at once
            batch = features.reshape(len(lengths), lengths[0], features.shape[-1])
            return self.keep(self.statistics(batch), tau).flatten()
        return torch.cat([self.keep(self.statistics(piece), tau) for piece in torch.split(features, lengths)])


def cap_spans(mask: Tensor, s_max: int) -> Tensor:
    """Cut every span longer than s_max each s_max frames from its start, as FlexiCodec does. mask: (..., N) bool."""
    time = torch.arange(mask.shape[-1], device=mask.device)
    start = torch.where(mask, time, 0).cummax(dim=-1).values  # of the span that holds t
    return (time - start) % s_max == 0


def nmse(features: Tensor, mask: Tensor) -> float:
    """Merge-space error of a segmentation (paper Section 4.4). features: (N, D), mask: (N,) bool.

    Every frame is replaced by the mean of its segment; the squared error is taken relative to the energy.
    """
    values = features.detach().double()
    segment = mask.cumsum(0) - 1  # (N,)
    sums = values.new_zeros(int(mask.sum()), values.shape[1]).index_add_(0, segment, values)
    means = sums / segment.bincount().unsqueeze(1)
    return float((values - means[segment]).square().sum() / (values.square().sum() + 1e-12))
