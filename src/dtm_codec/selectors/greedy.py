"""Greedy merging (paper Section 4.4)."""

from __future__ import annotations

import heapq

import numpy as np

from .base import Array, Mask
from .compiled import CompiledSelector, Floats, compiled, tokens_of_block
from .distances import unit


class Greedy(CompiledSelector):
    """Takes out the second frame of the most similar neighbouring pair until round(N / tau) frames are left.

    The paper's loop looks at every pair again each time, O(N^2); a heap finds the same pair in O(log N).
    """

    name = "greedy"
    tau_means = "mean frames per kept frame"

    def _analyse(self, features: Array) -> Array:
        """Unit vectors, for any two frames can become neighbours. (..., N, D) -> (..., N, D)."""
        return unit(features)

    def _decide_block(self, statistics: Floats, tau: float, start: int) -> Mask:
        frames = len(statistics)
        return _merge(statistics, tokens_of_block(start, start + frames, tau, self.s_max), self.s_max or frames)


@compiled
def _merge(vectors: Floats, tokens: int, s_max: int) -> Mask:
    """Merge the most similar neighbours, the earlier of equals first, while the span stays within s_max."""
    count = len(vectors)
    kept = np.ones(count, dtype=np.bool_)
    following = np.arange(1, count + 1)  # next kept frame, or the end
    heap = [(0.0, 0) for _ in range(0)]  # (-similarity, first frame of a pair), typed for the compiler
    for t in range(count - 1):
        similarity = 0.0
        for i in range(vectors.shape[1]):
            similarity += np.float64(vectors[t, i]) * vectors[t + 1, i]
        heap.append((-similarity, t))
    heapq.heapify(heap)
    left = count
    while left > tokens and len(heap) > 0:
        _, t = heapq.heappop(heap)
        if not kept[t]:
            continue  # merged into the frame before it
        second = following[t]
        third = following[second]
        if third - t > s_max:
            continue  # spans only grow, so this pair is out for good
        kept[second] = False
        following[t] = third
        left -= 1
        if third < count:
            similarity = 0.0
            for i in range(vectors.shape[1]):
                similarity += np.float64(vectors[t, i]) * vectors[third, i]
            heapq.heappush(heap, (-similarity, t))
    return kept
