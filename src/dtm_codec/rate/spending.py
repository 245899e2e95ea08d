"""As many tokens as a number of written bits pays for.

How many bits a file takes is known when it is written, and the codes depend on which steps are kept: Stage 2 sees only
these. So a few numbers of tokens are tried. The first is a guess from what tokens take on average and from the entropy
of the mask. The others follow from what the ones before cost, within the numbers that are known to fit and not to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..errors import RateError
from ..layout import Layout
from .calibration import reach_of
from .request import RateRequest

Result = TypeVar("Result")

TOLERANCE = 0.01
"""A file may stay below its rate by this much, or by two tokens where that is more. It is never above."""

STRAIGHT_PASSES = 5
"""Trials along a straight line. After these the interval is halved: the size of such a file does not grow evenly with
its tokens."""


@dataclass(frozen=True)
class Trial(Generic[Result]):
    result: Result
    tokens: int
    bits: int
    """As written, header aside."""
    token_bits: int
    """Of these, what the tokens took; the rest is the mask."""


def spend(
    request: RateRequest,
    num_samples: int,
    layout: Layout,
    s_max: int | None,
    token_cost: float,
    encode: Callable[[int], Trial[Result]],
    first: int | None = None,
) -> Trial[Result]:
    """The trial that comes nearest to the bitrate from below; all steps, if even they cost less.

    token_cost: bits that a token takes on average. encode: is given a number of tokens, and may miss it. first: tokens
    to begin with, if more is known.
    """
    assert request.bitrate is not None
    reach = reach_of(num_samples, layout, s_max)
    budget = request.bitrate * reach.seconds
    if request.strict and budget > layout.bits(reach.most, reach.steps).total + reach.slack * layout.token_bits:
        most = layout.bits(reach.most, reach.steps).total / reach.seconds
        raise RateError(f"bitrate = {request.bitrate:g} bps as written; allowed: up to {most:.0f} bps on this audio")
    tolerance = max(TOLERANCE * budget, 2 * layout.token_bits)
    aim = budget - tolerance / 2
    fits, too_many = reach.fewest - 1, reach.most + 1
    tokens = _guess(aim, reach.steps, token_cost) if first is None else first
    tokens = min(max(tokens, reach.fewest), reach.most)
    trials: list[Trial[Result]] = []
    best: Trial[Result] | None = None
    while True:
        trial = encode(tokens)
        trials.append(trial)
        if trial.bits > budget:
            too_many = tokens
        else:
            fits = tokens
            best = trial if best is None or trial.bits > best.bits else best
            if trial.bits >= budget - tolerance:
                return trial
        if too_many - fits <= 1:
            break
        straight = tokens + round((aim - trial.bits) / _slope(trial, reach.steps))
        tokens = straight if len(trials) <= STRAIGHT_PASSES else (fits + too_many) // 2
        tokens = min(max(tokens, fits + 1), too_many - 1)
    if best is not None:
        return best  # the next number of tokens is too many, or there are no more steps that move at all
    if request.strict and trials[-1].bits > budget + reach.slack * layout.token_bits:
        least = trials[-1].bits / reach.seconds
        raise RateError(f"bitrate = {request.bitrate:g} bps as written; allowed: {least:.0f} bps or more on this audio")
    return trials[-1]


def _guess(bits: float, steps: int, token_cost: float) -> int:
    """Tokens that take so many bits with their mask, by bisection: more tokens take more, or all of them are kept."""
    low, high = 0, steps
    while high - low > 1:
        middle = (low + high) // 2
        share = middle / steps
        mask = -steps * (share * math.log2(share) + (1 - share) * math.log2(1 - share))
        low, high = (middle, high) if middle * token_cost + mask <= bits else (low, middle)
    return high if steps * token_cost <= bits else low


def _slope(trial: Trial[Result], steps: int) -> float:
    """Bits that another token takes. Tokens that stand closer are easier to predict, so it takes a tenth less than the
    mean. The mask takes more for each while fewer than half of the steps are kept, and less afterwards."""
    share = min(max(trial.tokens / steps, 0.1), 0.9)
    return max(1.0, 0.9 * trial.token_bits / trial.tokens + math.log2((1 - share) / share))
