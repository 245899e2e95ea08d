"""tau for a target rate, on one utterance or a set (the paper's token-rate calibration, Section 4.1).

A target in bits or tokens a second becomes a number of tokens, `calibrate` finds the tau that keeps as many, and
says how many it really keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..encoded import Layout
from ..errors import RateError
from ..selectors.base import Selector
from .controller import TAU_MAX, TAU_MIN


@dataclass(frozen=True)
class Calibration:
    """A tau and what it gives."""

    tau: float
    tokens: int
    """Frames that it keeps on the audio calibrated on."""


def calibrate(selector: Selector, statistics: Sequence[Tensor], target_tokens: int) -> Calibration:
    """Bisect log tau until the utterances keep `target_tokens` in all, or as near as can be found.

    statistics: (N, C) of each utterance. Any count up to the frames can be hit exactly by PLE on one utterance, and on
    a set where no two utterances step at the same tau; a stride has only its few.
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
    bitrate: float, num_samples: int | Sequence[int], layout: Layout, s_max: int | None = None
) -> int:
    """Tokens that spend a total of `bitrate` bits a second, position bits included, on audio of these lengths."""
    steps, seconds = _extent(num_samples, layout)
    position = 0 if layout.stride is not None else sum(steps)
    tokens = (bitrate * seconds - position) / layout.token_bits
    fewest, most = _reachable(steps, layout, s_max)
    low, high = ((position + count * layout.token_bits) / seconds for count in (fewest, most))
    return _within(
        tokens, fewest, most, len(steps), f"bitrate = {bitrate:g} bps; allowed: {low:.0f} ... {high:.0f} bps"
    )


def tokens_for_token_rate(
    token_rate: float, num_samples: int | Sequence[int], layout: Layout, s_max: int | None = None
) -> int:
    """Tokens that make `token_rate` a second on audio of these lengths."""
    steps, seconds = _extent(num_samples, layout)
    fewest, most = _reachable(steps, layout, s_max)
    allowed = f"{fewest / seconds:.2f} ... {most / seconds:.2f} Hz"
    return _within(
        token_rate * seconds, fewest, most, len(steps), f"token rate = {token_rate:g} Hz; allowed: {allowed}"
    )


def _extent(num_samples: int | Sequence[int], layout: Layout) -> tuple[list[int], float]:
    """Stage-1 steps of each utterance, and seconds of all."""
    lengths = [num_samples] if isinstance(num_samples, int) else num_samples
    return [layout.steps(samples) for samples in lengths], sum(lengths) / layout.sample_rate


def _reachable(steps: Sequence[int], layout: Layout, s_max: int | None) -> tuple[int, int]:
    """Fewest and most tokens: a fixed rate has no choice, and every utterance has a first token."""
    if layout.stride is not None:
        fixed = sum(-(-count // layout.stride) for count in steps)
        return fixed, fixed
    return sum(-(-count // (s_max or count)) for count in steps), sum(steps)


def _within(tokens: float, fewest: int, most: int, slack: int, error: str) -> int:
    """Round to what can be reached; more than one token an utterance off is an error.

    One is the grain of short audio, whose last step is only partly filled.
    """
    if not fewest - slack <= tokens <= most + slack:
        raise RateError(f"{error} on this audio")
    return min(max(round(tokens), fewest), most)
