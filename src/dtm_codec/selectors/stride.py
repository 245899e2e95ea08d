"""Uniform stride: the fixed-frame-rate baseline (paper Section 3.4)."""

from __future__ import annotations

import numpy as np

from .base import Array, Mask, Selector


class Stride(Selector):
    """Keeps every n-th frame, n = floor(tau)."""

    name = "stride"
    tau_means = "frames per kept frame, rounded down"

    def _analyse(self, features: Array) -> Array:
        """The features do not matter. (..., N, D) -> (..., N, 0)."""
        return features[..., :0]

    def _decide(self, statistics: Array, tau: float) -> Mask:
        mask = np.arange(statistics.shape[-2]) % self.span(tau) == 0
        return np.broadcast_to(mask, statistics.shape[:-1]).copy()

    def span(self, tau: float) -> int:
        """Frames per kept frame."""
        return max(1, min(int(tau), self.s_max or int(tau)))
