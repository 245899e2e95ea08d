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
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from ..config import SelectorConfig
from ..errors import RateError

Array: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]

PIECE = 512
"""Frames analysed at a time."""


class Selector(ABC):
    """Chooses the frames to keep. The first frame of every utterance is always kept."""

    name: ClassVar[str]
    tau_means: ClassVar[str]
    """What tau measures, for the error about a bad tau."""
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

    def statistics(self, features: npt.ArrayLike) -> Array:
        """What `keep` needs. features: (..., N, D) -> (..., N, C), row t from rows t - context ... t.

        The rows before the start count as absent; a caller with a piece prepends `context` rows and drops theirs.
        This method does so itself, in short pieces: what they compute on the way fits into the processor's cache.
        """
        rows, pieces = np.asarray(features, np.float32), []
        for start in range(0, rows.shape[-2], PIECE):
            before = min(start, self.context)
            pieces.append(self._analyse(rows[..., start - before : start + PIECE, :])[..., before:, :])
        return np.concatenate(pieces, axis=-2)

    @abstractmethod
    def _analyse(self, features: Array) -> Array:
        """`statistics` of a short piece. features: (..., N, D) float32 -> (..., N, C)."""

    def keep(self, statistics: Array, tau: float) -> Mask:
        """Keep mask of whole utterances. statistics: (..., N, C) -> (..., N) bool, True = kept."""
        if not (math.isfinite(tau) and tau > 0):
            raise RateError(f"tau = {tau}; allowed: > 0 ({self.tau_means})")
        return self._bounded(self._decide(statistics, tau))

    @abstractmethod
    def _decide(self, statistics: Array, tau: float) -> Mask:
        """`keep` for a valid tau, without the first frame and the span cap."""

    def _bounded(self, mask: Mask) -> Mask:
        """With the first frame kept and no span above s_max. mask: (..., N) bool."""
        mask[..., 0] = True
        return mask if self.s_max is None else cap_spans(mask, self.s_max)

    def select(self, features: Array, lengths: list[int], tau: float, training: bool = False) -> Mask:
        """Keep mask of a packed batch. features: (sum N, D) -> (sum N,) bool.

        training: a selector that draws at random draws anew; the others decide as always.
        """
        if len(set(lengths)) == 1:  # crops of one length are decided at once
            batch = features.reshape(len(lengths), lengths[0], features.shape[-1])
            return self.keep(self.statistics(batch), tau).ravel()
        utterances = np.split(features, np.cumsum(lengths)[:-1])
        return np.concatenate([self.keep(self.statistics(own), tau) for own in utterances])


def cap_spans(mask: Mask, s_max: int) -> Mask:
    """Cut every span longer than s_max each s_max frames from its start, as FlexiCodec does. mask: (..., N) bool."""
    time = np.arange(mask.shape[-1])
    start = np.maximum.accumulate(np.where(mask, time, 0), axis=-1)  # of the span that holds t
    return np.asarray((time - start) % s_max == 0)


def nmse(features: npt.ArrayLike, mask: Mask) -> float:
    """Merge-space error of a segmentation (paper Section 4.4). features: (N, D), mask: (N,) bool.

    Every frame is replaced by the mean of its segment; the squared error is taken relative to the energy.
    """
    values = np.asarray(features, np.float64)
    segment = np.cumsum(mask) - 1  # (N,)
    means = np.add.reduceat(values, np.flatnonzero(mask)) / np.bincount(segment)[:, None]
    return float(np.square(values - means[segment]).sum() / (np.square(values).sum() + 1e-12))
