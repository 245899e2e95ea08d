"""What a caller asks of a codec's rate: total bits a second, tokens a second, a quality, or the selector's own tau.

A bitrate counts what Eq. 5 counts, or what a compact file holds beside its header (`written`). Range coding makes files
smaller, so the same bitrate buys more tokens when it is counted as written.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from numbers import Real
from typing import get_args

from ..config import MAX_STRIDE, Quality
from ..errors import ConfigError, RateError
from ..layout import Layout
from .calibration import tokens_for_bitrate, tokens_for_token_rate

TOLERANCE = 0.02
"""A fixed-rate codec has few rates; a request must be this close to one of them."""

_QUALITIES: dict[str, float] = {"low": 0.5, "normal": 1.0, "high": 1.3}
"""Bits a second of each quality, as Eq. 5 at so many times the model's keep ratio: 450, 800 and 1010 bps for 100 steps
a second of which half are kept, 14 bits each. A file that is written at these rates has some more by Eq. 5, still in
the range in which the bundled model was trained."""


def quality_bitrate(quality: Quality, layout: Layout, keep_ratio: float) -> float:
    """Total bits a second of a quality, in whole tens."""
    kept = min(1.0, _QUALITIES[quality] * keep_ratio)
    return 10.0 * round(layout.bitrate(kept * layout.frame_rate) / 10)


@dataclass(frozen=True)
class RateRequest:
    """At most one of the first four."""

    bitrate: float | None = None
    token_rate: float | None = None
    tau: float | None = None
    quality: Quality | None = None
    written: bool = False
    """The bitrate is that of a compact file without its header, not that of Eq. 5."""
    strict: bool = True
    """Refuse a bitrate that the audio at hand cannot have. Otherwise the nearest that it can have will do."""

    def __post_init__(self) -> None:
        asked = {"bitrate": self.bitrate, "token_rate": self.token_rate, "tau": self.tau, "quality": self.quality}
        given = {name: value for name, value in asked.items() if value is not None}
        if len(given) > 1:
            raise RateError(f"{' and '.join(given)} were given; allowed: one of {', '.join(asked)}")
        for name, value in given.items():
            if name == "quality":
                if value not in get_args(Quality):
                    raise RateError(f"quality = {value!r}; allowed: {', '.join(get_args(Quality))}")
            elif isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
                raise RateError(f"{name} = {value!r}; allowed: a number > 0")
        if not isinstance(self.written, bool):
            raise RateError(f"written = {self.written!r}; allowed: True, False")
        if self.written and self.bitrate is None and self.quality is None:
            raise RateError(f"written with {next(iter(given), 'no rate')}; allowed: with bitrate or quality")

    @property
    def is_open(self) -> bool:
        """Nothing was asked: the model's own rate will do."""
        return self.bitrate is None and self.token_rate is None and self.tau is None and self.quality is None

    def settled(self, layout: Layout, keep_ratio: float) -> RateRequest:
        """A quality becomes its bitrate. It is never refused: the nearest bitrate that the audio can have will do."""
        if self.quality is None:
            return self
        bitrate = quality_bitrate(self.quality, layout, keep_ratio)
        return replace(self, quality=None, bitrate=bitrate, strict=False)

    def tokens(self, num_samples: int, layout: Layout, s_max: int | None, most: int | None = None) -> int:
        """Tokens that meet a bitrate or token rate on one utterance at a variable rate. most: tokens that there are to
        choose from, if not one for every step"""
        if self.bitrate is not None:
            return tokens_for_bitrate(self.bitrate, num_samples, layout, s_max, strict=self.strict, most=most)
        assert self.token_rate is not None
        return tokens_for_token_rate(self.token_rate, num_samples, layout, s_max, most=most)

    def stride(self, layout: Layout, default: int, only: int | None) -> int:
        """Steps per token that meet the request at a fixed rate; `only` is the one stride there can be."""
        if self.is_open:
            return _writable(default, "the keep ratio")
        if self.quality is not None or self.written:
            asked_for = f"quality = {self.quality!r}" if self.quality else f"{self.bitrate:g} bps as written"
            raise RateError(f"{asked_for} at a fixed rate; allowed: a nominal bitrate, a token rate or nothing")
        if self.tau is not None:
            if only is not None and int(self.tau) != only:
                raise RateError(f"tau = {self.tau:g}; allowed: {only}, the stride of this stream or network")
            return _writable(max(1, int(self.tau)), f"tau = {self.tau:g}")
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
        return _writable(stride, f"{asked:g} {unit}")


def _writable(stride: int, asked: str) -> int:
    if stride > MAX_STRIDE:
        raise RateError(f"{asked} at a fixed rate: {stride:.4g} steps a token; allowed: 1 ... {MAX_STRIDE}")
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
