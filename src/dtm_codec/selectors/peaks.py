"""Temporal density-peak clustering, VARSTok's Algorithm 1 (paper Section 4.4)."""

from __future__ import annotations

import numpy as np

from .base import Array, Mask
from .compiled import CompiledSelector, Floats, compiled
from .distances import unit

NEIGHBOURS = 10
"""Most similar frames that a frame's density looks at."""
BETA = 0.2
"""How much the seed score of a frame keeps it out of another's cluster."""


class Peaks(CompiledSelector):
    """Grows clusters around the densest frames; their first frames are kept. O(N^2) within a block."""

    name = "peaks"
    tau_means = "1 - VARSTok's threshold"
    block = 2048

    def _analyse(self, features: Array) -> Array:
        """Unit vectors, for all pairs are compared. (..., N, D) -> (..., N, D)."""
        return unit(features)

    def _decide_block(self, statistics: Floats, tau: float, start: int) -> Mask:
        similarity = np.dot(statistics, statistics.T)
        similarity += 1
        similarity /= 2
        return _grow(similarity, _seed_scores(similarity), 1 - tau, self.s_max or len(similarity))


@compiled
def _seed_scores(similarity: Floats) -> Floats:
    """s_t = rho_t delta_t. similarity: (N, N) -> (N,).

    rho: exp of the mean similarity to the nearest frames; delta: distance to the nearest denser frame, or for the
    densest to the farthest.
    """
    count = len(similarity)
    neighbours = min(NEIGHBOURS, count - 1)
    density = np.ones(count)
    for t in range(count):
        top = np.full(neighbours, -np.inf)  # ascending
        for other in range(count):
            value = similarity[t, other]
            if other != t and neighbours > 0 and value > top[0]:
                place = 0
                while place + 1 < neighbours and top[place + 1] < value:
                    top[place] = top[place + 1]
                    place += 1
                top[place] = value
        if neighbours > 0:
            density[t] = np.exp(top.mean())
    scores = np.zeros(count)
    for t in range(count):
        nearest, farthest = np.inf, 0.0
        for other in range(count):
            distance = 1.0 - similarity[t, other]
            farthest = max(farthest, distance)
            if density[other] > density[t]:
                nearest = min(nearest, distance)
        scores[t] = density[t] * (nearest if nearest < np.inf else farthest)
    return scores


@compiled
def _grow(similarity: Floats, scores: Floats, threshold: float, s_max: int) -> Mask:
    """Clusters from the highest score down, to the right, then to the left, over free frames similar to the seed."""
    count = len(scores)
    free = np.ones(count, dtype=np.bool_)
    mask = np.zeros(count, dtype=np.bool_)
    for seed in np.argsort(-scores, kind="mergesort"):
        if not free[seed]:
            continue
        first, last = seed, seed
        while (
            last + 1 < count
            and free[last + 1]
            and last + 1 - first < s_max
            and similarity[seed, last + 1] - BETA * scores[last + 1] > threshold
        ):
            last += 1
        while (
            first > 0
            and free[first - 1]
            and last + 1 - first < s_max
            and similarity[seed, first - 1] - BETA * scores[first - 1] > threshold
        ):
            first -= 1
        free[first : last + 1] = False
        mask[first] = True
    return mask
