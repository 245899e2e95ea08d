"""Steers a selector's tau to a keep ratio while training (paper Section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..errors import RateError

TAU_MIN, TAU_MAX = 1e-6, 1e6
"""Every tau that is steered or calibrated stays within these."""


class TauController:
    """Robbins-Monro steps in log tau: tau <- clip(tau exp(+eta_t (r_ema - r_target))), eta_t = eta0 / sqrt(1 + t / T).

    The paper prints exp(-eta ...) with r the keep ratio. A larger tau keeps fewer frames, so that sign drives tau to
    its clip (its author's code applies it to the masked ratio); with r the keep ratio the step must be positive.
    The moving average is debiased: one that starts at zero pushes tau the wrong way for its first updates.

    One tau serves all processes of a data-parallel run: all-reduce the sums of kept and frames before `update`,
    then every process holds the same state. `calibrate` on a first batch gives a tau to start from.
    """

    def __init__(
        self,
        target: float,
        tau: float,
        *,
        momentum: float = 0.95,
        eta0: float = 0.1,
        decay_steps: float = 1000.0,
        every: int = 1,
    ) -> None:
        """`every`: steps between two changes of tau (U_ctrl); the keep ratio is averaged over all of them."""
        if not 0 < target <= 1:
            raise RateError(f"target keep ratio = {target}; allowed: 0 < target <= 1")
        if not (math.isfinite(tau) and tau > 0):
            raise RateError(f"tau = {tau}; allowed: > 0")
        if every < 1:
            raise RateError(f"every = {every}; allowed: >= 1")
        self.target = target
        self.tau = min(max(tau, TAU_MIN), TAU_MAX)
        self._momentum = momentum
        self._eta0 = eta0
        self._decay_steps = decay_steps
        self._every = every
        self._steps = 0
        self._average = 0.0

    @property
    def keep_ratio(self) -> float:
        """Moving average of the keep ratio seen; the target before the first step."""
        return self._average / (1 - self._momentum**self._steps) if self._steps else self.target

    def update(self, kept: int, frames: int) -> float:
        """Take one training step's counts, summed over all processes; returns the tau of the next step."""
        if not 0 <= kept <= frames or frames == 0:
            raise RateError(f"{kept} kept of {frames} frames; allowed: 0 <= kept <= frames, frames > 0")
        self._steps += 1
        self._average = self._momentum * self._average + (1 - self._momentum) * kept / frames
        if self._steps % self._every == 0:
            eta = self._eta0 / math.sqrt(1 + self._steps / self._decay_steps)
            tau = self.tau * math.exp(eta * (self.keep_ratio - self.target))
            self.tau = min(max(tau, TAU_MIN), TAU_MAX)
        return self.tau

    def state_dict(self) -> dict[str, float]:
        return {"tau": self.tau, "average": self._average, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.tau = float(state["tau"])
        self._average = float(state["average"])
        self._steps = int(state["steps"])
