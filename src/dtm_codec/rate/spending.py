"""As many tokens as a number of written bits pays for.

How many bits a file takes is known when it is written, and the codes depend on which steps are kept: Stage 2 sees only
these. So a few numbers of tokens are tried. The first is that of Eq. 5. The others follow from what the ones before
cost: a line through the last two, within the numbers that are known to fit and not to fit.
"""

from __future__ import annotations

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
"""After so many trials, what is left between is halved: sizes of this audio are not nearly a line."""


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
    encode: Callable[[int], Trial[Result]],
    first: int | None = None,
) -> Trial[Result]:
    """The trial that comes nearest to the bitrate from below; all steps, if even they cost less.

    encode: is given a number of tokens, and may miss it. first: tokens to begin with, if more is known than Eq. 5.
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
    nominal = (budget - layout.bits(0, reach.steps).total) / layout.token_bits
    tokens = min(max(round(nominal) if first is None else first, reach.fewest), reach.most)
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
        straight = tokens + round((aim - trial.bits) / _slope(trials, layout.token_bits))
        tokens = straight if len(trials) <= STRAIGHT_PASSES else (fits + too_many) // 2
        tokens = min(max(tokens, fits + 1), too_many - 1)
    if best is not None:
        return best  # the next number of tokens is too many, or there are no more steps that move at all
    if request.strict and trials[-1].bits > budget + reach.slack * layout.token_bits:
        least = trials[-1].bits / reach.seconds
        raise RateError(f"bitrate = {request.bitrate:g} bps as written; allowed: {least:.0f} bps or more on this audio")
    return trials[-1]


def _slope(trials: list[Trial[Result]], width: int) -> float:
    """Bits that another token takes. Tokens that stand closer are easier to predict, so that is less than their mean.

    Two trials tell if they are far enough apart. Before that, a fifth less than the mean is a fair guess.
    """
    last = trials[-1]
    if len(trials) > 1:
        apart = last.tokens - trials[-2].tokens
        if abs(apart) >= max(3, last.tokens / 50):
            return min(max((last.bits - trials[-2].bits) / apart, width / 4), 2.0 * width)
    return max(0.8 * last.token_bits / last.tokens, width / 4)
