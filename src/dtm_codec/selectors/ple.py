"""Path Length Equalization (paper Section 3.3, Algorithm 1)."""

from __future__ import annotations

import numpy as np

from ..config import Distance, SelectorConfig
from .base import Array, Mask, Selector
from .distances import cosine, l2

DECIDED_AT_ONCE = 1 << 16
"""Frames: what is computed on the way takes ten times the memory of the statistics themselves."""


class PLE(Selector):
    """Keeps a frame each time the path through feature space has grown by tau. Linear time, no loop."""

    name = "ple"
    tau_means = "path length per kept frame"
    context = 1

    def __init__(self, s_max: int | None = None, distance: Distance = "cosine", first_crossing: bool = False) -> None:
        """`first_crossing`: a step over several multiples of tau keeps one frame, not also those that follow."""
        super().__init__(s_max)
        self.distance = distance
        self.first_crossing = first_crossing

    @classmethod
    def from_config(cls, config: SelectorConfig) -> PLE:
        return cls(config.s_max, config.distance, config.first_crossing)

    def _analyse(self, features: Array) -> Array:
        """Step lengths d_t. features: (..., N, D) -> (..., N, 1)."""
        steps = cosine(features) if self.distance == "cosine" else l2(features)
        return steps[..., None]

    def _decide(self, statistics: Array, tau: float) -> Mask:
        """Algorithm 1 without its loop.

        With F_t the multiples of tau that the path has passed at frame t, Algorithm 1 places at most one boundary
        a frame, so it has placed b_t = min over s <= t of (F_s + t - s) by then: every s from which it was not
        behind gives a bound, and the last such one is tight. A running minimum of F_t - t is all it takes.
        """
        mask: Mask = np.empty(statistics.shape[:-1], np.bool_)
        path_end = np.zeros((*mask.shape[:-1], 1))
        placed_before = least = path_end  # b_t and the running minimum of F_t - t, at the end of the last block
        for start in range(0, mask.shape[-1], DECIDED_AT_ONCE):
            steps = statistics[..., start : start + DECIDED_AT_ONCE, 0]
            path = np.cumsum(np.concatenate([path_end, steps], -1), -1)[..., 1:]  # S_t, summed in order as the whole is
            placed = np.floor(path / tau)
            placed += (placed + 1) * tau <= path  # the division may round across the multiple that
            placed -= placed * tau > path  # Algorithm 1 compares with
            if not self.first_crossing:
                time = np.arange(start, start + path.shape[-1], dtype=np.float64)
                lowest = np.minimum.accumulate(placed - time, -1)
                lowest = lowest if start == 0 else np.minimum(lowest, least)
                placed = lowest + time
                least = lowest[..., -1:]
            before = placed[..., :1] if start == 0 else placed_before
            mask[..., start : start + path.shape[-1]] = np.diff(placed, prepend=before) > 0
            path_end, placed_before = path[..., -1:], placed[..., -1:]
        return mask
