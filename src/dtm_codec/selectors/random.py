"""Bernoulli masks: the base training of the selector comparison (paper Section 4.4)."""

from __future__ import annotations

import numpy as np

from .base import Array, Mask, Selector


class Random(Selector):
    """Keeps each frame with probability 1 / tau.

    The draws are the same for every utterance, so that an encoding can be repeated. In training they are new in every
    step: one sequence from torch's global generator over the crops of all processes.
    """

    name = "random"
    tau_means = "mean frames per kept frame"
    passed_over: int = 0
    """Draws in training that belong to the crops of earlier processes."""

    def _analyse(self, features: Array) -> Array:
        """The features do not matter. (..., N, D) -> (..., N, 0)."""
        return features[..., :0]

    def _decide(self, statistics: Array, tau: float) -> Mask:
        draws = np.random.Generator(np.random.PCG64(0)).random(statistics.shape[-2])
        return np.broadcast_to(draws < 1 / tau, statistics.shape[:-1]).copy()

    def select(self, features: Array, lengths: list[int], tau: float, training: bool = False) -> Mask:
        """Keep mask of a packed batch; fresh draws in training. features: (sum N, D) -> (sum N,) bool."""
        if not training:
            return super().select(features, lengths, tau)
        import torch

        draws = torch.rand(self.passed_over + features.shape[0])[self.passed_over :]
        drawn = draws.numpy() < 1 / tau
        return np.concatenate([self._bounded(mask) for mask in np.split(drawn, np.cumsum(lengths)[:-1])])
