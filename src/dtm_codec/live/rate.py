"""Path Length Equalization a step at a time, at a tau that is given or steered (paper Section 3.3, Algorithm 1).

A stream cannot be calibrated on what is still to be spoken. It has a budget instead: so many tokens a step, and a limit
to how far what was spent may stray from that. tau follows the mean length of a step and the state of the budget; where
that is not enough, as in digital silence, the limit itself keeps or refuses a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import RateError
from ..layout import Layout
from ..rate.controller import TAU_MAX, TAU_MIN
from ..rate.request import RateRequest

WINDOW_SECONDS, TOLERANCE = 2.0, 0.15
"""Any stretch of this length keeps to the asked bitrate within this share."""
MEMORY_SECONDS = 5.0
"""How far back the mean length of a step looks."""
PRIOR_SECONDS = 1.0
"""Speech that the tau of training counts as, when a stream starts."""


@dataclass
class Budget:
    """Tokens a step, and what is left of them."""

    tokens_per_step: float
    slack: float
    """The balance stays within this many tokens of 0, so that any stretch is within twice that."""
    balance: float = 0.0

    @classmethod
    def of(cls, request: RateRequest, layout: Layout, s_max: int | None) -> Budget:
        """What a bitrate or token rate comes to."""
        if request.bitrate is not None:
            bitrate, token_rate = request.bitrate, (request.bitrate - layout.frame_rate) / layout.token_bits
        else:
            assert request.token_rate is not None
            bitrate, token_rate = layout.bitrate(request.token_rate), request.token_rate
        fewest = layout.frame_rate / s_max if s_max else 0.0
        if not (0 < token_rate <= layout.frame_rate and token_rate >= fewest):
            low, high = (f"{layout.bitrate(rate):.0f}" for rate in (fewest, layout.frame_rate))
            allowed = f"{low} ... {high} bps" if fewest else f"more than {low} bps, up to {high}"
            raise RateError(f"{bitrate:g} bps ({token_rate:g} tokens a second); allowed: {allowed}")
        slack = TOLERANCE * bitrate * WINDOW_SECONDS / 2 / layout.token_bits
        return cls(token_rate / layout.frame_rate, max(1.0, slack))

    @property
    def is_spent(self) -> bool:
        """Another token now would be one too many."""
        return self.balance + self.tokens_per_step - 1 < -self.slack

    @property
    def is_overdue(self) -> bool:
        """No token now would be one too few."""
        return self.balance + self.tokens_per_step > self.slack

    def step(self, kept: bool) -> None:
        """Tokens that nobody spends for long, as where a relay is sent none, are not saved up for later."""
        self.balance = min(self.balance + self.tokens_per_step - kept, self.slack)


class CausalPLE:
    """Decides each step when it comes."""

    def __init__(self, frame_rate: float, *, s_max: int | None = None, first_crossing: bool = False) -> None:
        """Call `fix` or `steer` before the first step."""
        self._s_max, self._first_crossing = s_max, first_crossing
        self._forget = math.exp(-1 / (MEMORY_SECONDS * frame_rate))
        self._prior_steps = PRIOR_SECONDS * frame_rate
        self._tau = 1.0
        self._budget: Budget | None = None
        self._path_seen, self._steps_seen = 0.0, 0.0
        self._travelled = 0.0  # since the last multiple of tau
        self._since: int | None = None  # steps since the path last kept one; None before the first

    def fix(self, tau: float) -> CausalPLE:
        """The same tau throughout: the mask is that of the whole utterance at once."""
        self._tau, self._budget = tau, None
        return self

    def steer(self, budget: Budget, mean_step: float | None = None) -> CausalPLE:
        """Keep to a budget. mean_step: length of a step in speech that the model knows."""
        self._budget = budget
        if mean_step is not None:
            self._path_seen, self._steps_seen = mean_step * self._prior_steps, self._prior_steps
        return self

    def keep(self, distance: float) -> bool:
        """Whether to keep the next step, `distance` away from the one before."""
        budget = self._budget
        if budget is not None:
            self._tau = self._steered_tau(distance, budget)
        self._travelled += distance
        kept = self._since is None or self._travelled >= self._tau
        if self._since is not None and kept:
            self._travelled = self._travelled % self._tau if self._first_crossing else self._travelled - self._tau
        if budget is not None and self._since is not None:
            if kept and budget.is_spent:
                kept, self._travelled = False, self._tau  # the next step that can be paid is kept
            elif not kept and budget.is_overdue:
                kept, self._travelled = True, 0.0
            elif kept:
                self._travelled = min(self._travelled, self._tau)  # no debt that outlives a change of tau
        self._since = 0 if kept else (self._since or 0) + 1
        kept = kept or (self._s_max is not None and self._since % self._s_max == 0)
        if budget is not None:
            budget.step(kept)
        return kept

    def pass_over(self) -> None:
        """A step that has nothing to keep."""
        if self._budget is not None:
            self._tau = self._steered_tau(0.0, self._budget)
            self._budget.step(False)

    def _steered_tau(self, distance: float, budget: Budget) -> float:
        self._path_seen = self._forget * self._path_seen + distance
        self._steps_seen = self._forget * self._steps_seen + 1
        mean_step = self._path_seen / self._steps_seen
        tau = mean_step / budget.tokens_per_step * math.exp(-budget.balance / budget.slack)
        return min(max(tau, TAU_MIN), TAU_MAX)
