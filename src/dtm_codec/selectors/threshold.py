"""Similarity-threshold merging, FlexiCodec's criterion (paper Section 4.4)."""

from __future__ import annotations

import numpy as np

from .base import Array, Mask, Selector
from .distances import cosine


class Threshold(Selector):
    """A frame starts a new run where its cosine similarity to the one before is at most 1 - tau. Linear time."""

    name = "threshold"
    tau_means = "1 - similarity threshold"
    context = 1

    def _analyse(self, features: Array) -> Array:
        """Cosine distance to the frame before. features: (..., N, D) -> (..., N, 1)."""
        return cosine(features)[..., None]

    def _decide(self, statistics: Array, tau: float) -> Mask:
        return np.asarray(statistics[..., 0] >= tau)
