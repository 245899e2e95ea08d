"""The selector protocol: features in, keep mask out (paper Section 3.2 and 3.3).

A selector works in two steps, so that one analysis of an utterance serves any number of rates, and long
audio can be analysed piece by piece:

* `statistics` reduces features to what the decision needs, a few numbers a frame for the linear-time selectors.
  It looks back at most `context` frames, so the statistics of a long utterance are those of its pieces, joined.
* `keep` decides, given one positive number `tau`. The larger tau, the fewer frames are kept, for every selector:
  what tau measures is each selector's own (path length, distance threshold, price of a segment, mean span).

Selectors that weigh all pairs or all segmentations of an utterance would need time or memory beyond
linear; they decide in blocks of `block` frames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class Selector(ABC):
    """Chooses the frames to keep. The first frame of every utterance is always kept."""

    name: ClassVar[str]
    tau_means: ClassVar[str]
    """What tau measures, for help texts."""
    block: ClassVar[int | None] = None
    """Longest stretch decided as a whole, in frames; None if any length is."""

    s_max: int | None
    """Longest span of one kept frame."""

    @property
    def context(self) -> int:
        """Frames before a piece that its statistics need."""
        return 0

    @abstractmethod
    def statistics(self, features: Tensor) -> Tensor:
        """What `keep` needs of one utterance or piece. features: (N, D) -> (N, C), row t from rows t - context ... t.

        The rows before the start count as absent; a caller with a piece prepends `context` rows and drops theirs.
        """

    @abstractmethod
    def keep(self, statistics: Tensor, tau: float) -> Tensor:
        """Keep mask of one utterance. statistics: (N, C) -> (N,) bool, True = kept, on the same device."""

    def select(self, features: Tensor, lengths: list[int], tau: float) -> Tensor:
        """Keep mask of a packed batch. features: (sum N, D) -> (sum N,) bool."""
        return torch.cat([self.keep(self.statistics(piece), tau) for piece in features.split(lengths)])
