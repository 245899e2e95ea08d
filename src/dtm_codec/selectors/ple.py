"""Path Length Equalization (paper Section 3.3, Algorithm 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import Distance, SelectorConfig
from .base import Selector
from .distances import cosine, l2


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

    def _analyse(self, features: Tensor) -> Tensor:
        """Step lengths d_t. features: (..., N, D) -> (..., N, 1)."""
        steps = cosine(features) if self.distance == "cosine" else l2(features)
        return steps.unsqueeze(-1)

    def _decide(self, statistics: Tensor, tau: float) -> Tensor:
        """Algorithm 1 without its loop.

        With F_t the multiples of tau that the path has passed at frame t, Algorithm 1 places at most one boundary
        a frame, so it has placed b_t = min over s <= t of (F_s + t - s) by then: every s from which it was not
        behind gives a bound, and the last such one is tight. A running minimum of F_t - t is all it takes.
        """
        path = statistics[..., 0].double().cumsum(dim=-1)  # S_t
        passed = (path / tau).floor_()
        passed += (passed + 1) * tau <= path  # the division may round across the multiple that
        passed -= (passed * tau > path).double()  # Algorithm 1 compares with
        if not self.first_crossing:
            time = torch.arange(path.shape[-1], device=path.device, dtype=path.dtype)
            passed = (passed - time).cummin(dim=-1).values + time  # b_t
        return passed.diff(dim=-1, prepend=passed[..., :1]) > 0
