"""Similarity-threshold merging, FlexiCodec's criterion (paper Section 4.4)."""

from __future__ import annotations

from torch import Tensor

from .base import Selector
from .distances import cosine


class Threshold(Selector):
    """A frame starts a new run where its cosine similarity to the one before is at most 1 - tau. Linear time."""

    name = "threshold"
    tau_means = "1 - similarity threshold"
    context = 1

    def _analyse(self, features: Tensor) -> Tensor:
        """Cosine distance to the frame before. features: (..., N, D) -> (..., N, 1)."""
        return cosine(features).unsqueeze(-1)

    def _decide(self, statistics: Tensor, tau: float) -> Tensor:
        return statistics[..., 0] >= tau
