"""Uniform stride: the fixed-frame-rate baseline (paper Section 3.4)."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Selector


class Stride(Selector):
    """Keeps every n-th frame, n = floor(tau)."""

    name = "stride"
    tau_means = "frames per kept frame, rounded down"

    def _analyse(self, features: Tensor) -> Tensor:
        """The features do not matter. (..., N, D) -> (..., N, 0)."""
        return features[..., :0]

    def _decide(self, statistics: Tensor, tau: float) -> Tensor:
        mask = torch.arange(statistics.shape[-2], device=statistics.device) % self.span(tau) == 0
        return mask.repeat(*statistics.shape[:-2], 1)

    def span(self, tau: float) -> int:
        """Frames per kept frame."""
        return max(1, min(int(tau), self.s_max or int(tau)))
