"""tau for a target rate, on one utterance or a set (the paper's token-rate calibration, Section 4.1).

A target in bits or tokens a second becomes a number of tokens, `calibrate` finds the tau that keeps as many, and
says how many it really keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ..errors import RateError
from ..layout import Layout
from ..selectors.base import Selector
from .controller import TAU_MAX, TAU_MIN


@dataclass(frozen=True)
class Calibration:
    tau: float
    tokens: int
    """Frames that it keeps on the audio calibrated on."""


def calibrate(selector: Selector, statistics: Sequence[npt.NDArray[Any]], target_tokens: int) -> Calibration:
    """Bisect log tau until the utterances keep `target_tokens` in all, or as near as can be found.

    statistics: (N, C) of each utterance. Any count up to the frames that move at all can be hit exactly by PLE on one
    utterance, and on a set where no two utterances step at the same tau; a stride has only its few.
    """
    if not statistics:
        raise RateError("calibration on 0 utterances; allowed: 1 or more")

    def at(tau: float) -> Calibration:
        return Calibration(tau, sum(int(selector.keep(utterance, tau).sum()) for utterance in statistics))

    low, high = at(TAU_MIN), at(TAU_MAX)  # low tau, many tokens
    best = min(high, low, key=lambda end: abs(end.tokens - target_tokens))
    while best.tokens != target_tokens and high.tau / low.tau > 1 + 1e-12:
        middle = at(math.sqrt(low.tau * high.tau))
        best = min(best, middle, key=lambda found: abs(found.tokens - target_tokens))
        if middle.tokens > target_tokens:
            low = middle
        else:
            high = middle
    return best


def tokens_for_bitrate(
    bitrate: float,
    num_samples: int | Sequence[int],
    layout: Layout,
    s_max: int | None = None,
    *,
    strict: bool = True,
    most: int | None = None,
) -> int:
    """Tokens that spend a total of `bitrate` bits a second, position bits included, on audio of these lengths.

    strict: refuse what cannot be reached; otherwise the nearest that can be. most: tokens that there are to choose from
    """
    reach = reach_of(num_samples, layout, s_max, most)
    low, high = (layout.bits(tokens, reach.steps).total / reach.seconds for tokens in (reach.fewest, reach.most))
    return reach.nearest(
        (bitrate * reach.seconds - layout.bits(0, reach.steps).total) / layout.token_bits,
        f"bitrate = {bitrate:g} bps; allowed: {low:.0f} ... {high:.0f} bps on this audio",
        strict,
    )


def tokens_for_token_rate(
    token_rate: float,
    num_samples: int | Sequence[int],
    layout: Layout,
    s_max: int | None = None,
    *,
    most: int | None = None,
) -> int:
    """Tokens that make `token_rate` a second on audio of these lengths. most: that there are to choose from"""
    reach = reach_of(num_samples, layout, s_max, most)
    low, high = (tokens / reach.seconds for tokens in (reach.fewest, reach.most))
    return reach.nearest(
        token_rate * reach.seconds,
        f"token rate = {token_rate:g} Hz; allowed: {low:.2f} ... {high:.2f} Hz on this audio",
    )


@dataclass(frozen=True)
class Reach:
    """What a codec can spend on given audio."""

    seconds: float
    steps: int
    fewest: int
    most: int
    slack: float
    """Tokens that a request may lie beyond: the last step of an utterance is paid in full, however little it holds."""

    def nearest(self, tokens: float, refusal: str, strict: bool = True) -> int:
        """A whole number of tokens that can be reached."""
        if strict and not self.fewest - self.slack <= tokens <= self.most + self.slack:
            raise RateError(refusal)
        return min(max(round(tokens), self.fewest), self.most)


def reach_of(num_samples: int | Sequence[int], layout: Layout, s_max: int | None, most: int | None = None) -> Reach:
    """A fixed rate has no choice; at a variable one every utterance has a token for its first step. most: tokens, if
    not every step may have one"""
    lengths = [num_samples] if isinstance(num_samples, int) else num_samples
    steps = [layout.steps(samples) for samples in lengths]
    fewest = sum(-(-count // (layout.stride or s_max or count)) for count in steps)
    return Reach(
        seconds=sum(lengths) / layout.sample_rate,
        steps=sum(steps),
        fewest=fewest,
        most=fewest if layout.stride is not None else sum(steps) if most is None else most,
        slack=len(steps) * (1 + 1 / layout.token_bits),
    )
