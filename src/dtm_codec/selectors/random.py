"""Bernoulli masks: the base training of the selector comparison (paper Section 4.4)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .base import Selector


class Random(Selector):
    """Keeps each frame with probability 1 / tau.

    The draws are the same for every utterance, so that an encoding can be repeated. In training they are new in every
    step: one sequence from torch's global generator over the crops of all processes.
    """

    name = "random"
    tau_means = "mean frames per kept frame"
    passed_over: int = 0
    """Draws in training that belong to the crops of earlier processes."""

    def _analyse(self, features: Tensor) -> Tensor:
        """The features do not matter. (..., N, D) -> (..., N, 0)."""
        return features[..., :0]

    def _decide(self, statistics: Tensor, tau: float) -> Tensor:
        draws = np.random.Generator(np.random.PCG64(0)).random(statistics.shape[-2])
        return torch.from_numpy(draws < 1 / tau).to(statistics.device).repeat(*statistics.shape[:-2], 1)

    def select(self, features: Tensor, lengths: list[int], tau: float, training: bool = False) -> Tensor:
        """Keep mask of a packed batch; fresh draws in training. features: (sum N, D) -> (sum N,) bool."""
        if not training:
            return super().select(features, lengths, tau)
        draws = torch.rand(self.passed_over + features.shape[0])[self.passed_over :]
        drawn = draws.to(features.device) < 1 / tau
        return torch.cat([self._bounded(mask) for mask in torch.split(drawn, lengths)])
