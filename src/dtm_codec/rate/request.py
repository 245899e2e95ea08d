"""What a caller asks of a codec's rate: total bits a second, tokens a second, or the selector's own tau."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from numbers import Real

from ..errors import ConfigError, RateError
from ..layout import Layout
from .calibration import tokens_for_bitrate, tokens_for_token_rate

TOLERANCE = 0.02
"""A fixed-rate codec has few rates; a request must be this close to one of them."""


@dataclass(frozen=True)
class RateRequest:
    """At most one of the three."""

    bitrate: float | None = None
    token_rate: float | None = None
    tau: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) > 1:
            raise RateError(f"{' and '.join(given)} were given; allowed: one of bitrate, token_rate, tau")
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
                raise RateError(f"{name} = {value!r}; allowed: a number > 0")

    @property
    def is_open(self) -> bool:
        """Nothing was asked: the model's own rate will do."""
        return self.bitrate is None and self.token_rate is None and self.tau is None

    def tokens(self, num_samples: int, layout: Layout, s_max: int | None) -> int:
        """Tokens that meet a bitrate or token rate on one utterance at a variable rate."""
        if self.bitrate is not None:
            return tokens_for_bitrate(self.bitrate, num_samples, layout, s_max)
        assert self.token_rate is not None
        return tokens_for_token_rate(self.token_rate, num_samples, layout, s_max)

    def stride(self, layout: Layout, default: int, only: int | None) -> int:
        """Steps per token that meet the request at a fixed rate; `only` is the one stride that a network can do."""
        if self.is_open:
            return default
        if self.tau is not None:
            if only is not None and int(self.tau) != only:
                raise RateError(f"tau = {self.tau:g} with conv resampling; allowed: {only}, the stride of the network")
            return max(1, int(self.tau))
        asked, unit = (self.bitrate, "bps") if self.token_rate is None else (self.token_rate, "Hz")
        assert asked is not None

        def reached(stride: int) -> float:
            token_rate = layout.frame_rate / stride
            return token_rate if unit == "Hz" else replace(layout, stride=stride).bitrate(token_rate)

        stride = only or max(1, round(reached(1) / asked))
        if abs(reached(stride) - asked) > TOLERANCE * asked:
            reachable = ", ".join(f"{reached(s):.4g}" for s in ((only,) if only else (1, 2, 3, 4)))
            more = "" if only else " ..."
            raise RateError(f"{asked:g} {unit} at a fixed rate; allowed: {reachable}{more} {unit}")
        return stride


def check_effort(effort: int) -> int:
    """A whole number of rounds, of any integer type."""
    try:
        rounds = -1 if isinstance(effort, bool) else operator.index(effort)
    except TypeError:
        rounds = -1
    if rounds < 0:
        raise ConfigError(f"effort = {effort!r}; allowed: a whole number >= 0")
    return rounds
