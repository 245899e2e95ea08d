"""Which steps of an utterance are kept: a selector, a request for a rate, and the tau that meets it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from ..backends.base import Backend, Floats, Mask, Positions
from ..bitstream.token_coder import TokenModel
from ..config import CodecConfig, SelectorConfig
from ..encoded import Encoded
from ..errors import RateError
from ..layout import Layout
from ..rate.calibration import calibrate
from ..rate.request import RateRequest
from ..rate.spending import Trial, spend
from ..selectors import Selector, build
from ..selectors.stride import Stride
from .pieces import starts_of

OnProgress: TypeAlias = Callable[[float], None]
"""Is told how much is done, 0 ... 1."""
Refine: TypeAlias = Callable[[list[Encoded]], list[Encoded]]
"""A search for better codes of the same utterances."""

DEFAULT_S_MAX = 4
"""Span limit of the segmenting selectors when the model's own selector has none (CodecSlime, VARSTok)."""


def unwatched(done: float) -> None:
    """For callers who do not ask how much is done."""


def tell_part(on_progress: OnProgress, before: float, share: float, done: float) -> None:
    """Of a part: how much was done before it, and its share of the whole."""
    on_progress(before + share * done)


def layout_of(config: CodecConfig, stride: int | None) -> Layout:
    """The layout of a model with a selector that need not be its own."""
    return replace(config.layout, stride=stride)


def selector_config(config: CodecConfig, selector: str | SelectorConfig | None) -> SelectorConfig:
    """The selector that was asked for, by name or configuration; None is the model's own."""
    own = config.selector
    if selector is None or selector == own.name:
        return own
    if isinstance(selector, str):
        s_max = own.s_max if selector != "stride" else None
        if selector in ("dp", "lagrangian", "peaks"):
            s_max = s_max or DEFAULT_S_MAX
        selector = SelectorConfig.from_dict({"name": selector, "s_max": s_max, "features": own.features}, "selector")
    if config.downsampler == "conv" and selector.name != "stride":
        raise RateError(f"selector {selector.name!r} with conv resampling; allowed: 'stride'")
    return selector


class Statistics:
    """What a selector decides on, of utterances whose features come in pieces."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self._starts: list[int] = []
        self._before: Floats | None = None
        self._values: Floats | None = None
        self._filled = 0

    def add(self, features: Floats, positions: Positions) -> None:
        """features: (S, F), positions: (S,)"""
        starts = starts_of(positions)
        for own, own_positions in zip(np.split(features, starts), np.split(positions, starts), strict=True):
            if own_positions[0] == 0:
                self._starts.append(self._filled)
                self._before = own[:0]
            assert self._before is not None
            joined = np.concatenate([self._before, own])
            self._append(self.selector.statistics(joined)[len(self._before) :])
            self._before = joined[max(0, len(joined) - self.selector.context) :].copy()

    def _append(self, values: Floats) -> None:
        end = self._filled + len(values)
        if self._values is None or end > len(self._values):
            grown = np.empty((max(1 << 16, 2 * end), values.shape[1]), values.dtype)  # doubled, to be copied seldom
            if self._values is not None:
                grown[: self._filled] = self._values[: self._filled]
            self._values = grown
        self._values[self._filled : end] = values
        self._filled = end

    def of_utterances(self) -> list[Floats]:
        """(N, C) each."""
        assert self._values is not None
        ends = [*self._starts[1:], self._filled]
        return [self._values[start:end] for start, end in zip(self._starts, ends, strict=True)]


class Choice:
    """Turns what was asked for into keep masks."""

    def __init__(self, backend: Backend, chosen: SelectorConfig, request: RateRequest) -> None:
        self.features = chosen.features
        self.selector = backend.selector if chosen == backend.config.selector else build(chosen)
        self._config = backend.config
        fixed = isinstance(self.selector, Stride)
        self._request = request if fixed else request.settled(layout_of(self._config, None), self._config.keep_ratio)
        self.is_written = request.written and not fixed
        """Masks are sought by what they cost in a file."""
        self._tau_of_training = backend.tau if self.selector is backend.selector else math.nan

    def masks(self, num_samples: list[int], statistics: list[Floats]) -> tuple[list[Mask], list[Layout]]:
        """Keep mask of each utterance, and the layout that it makes. statistics: (N, C) each"""
        masks, layouts = [], []
        for size, own_statistics in zip(num_samples, statistics, strict=True):
            tau = self._tau(own_statistics, size)
            masks.append(self.selector.keep(own_statistics, tau))
            stride = self.selector.span(tau) if isinstance(self.selector, Stride) else None
            layouts.append(layout_of(self._config, stride))
        return masks, layouts

    def spend(
        self,
        num_samples: int,
        statistics: Floats,
        token_model: TokenModel | None,
        code: Callable[[list[Mask], list[Layout], OnProgress], list[Encoded]],
        on_progress: OnProgress,
        refine: Refine | None,
    ) -> list[Encoded]:
        """The one utterance whose file has the rate that was asked for (`rate/spending.py`).

        statistics: (N, C); code: Stage 2 on the kept steps; refine: the search for better codes
        """
        layout, passes = layout_of(self._config, None), 0

        def attempt(tokens: int, refined: bool = False) -> Trial[list[Encoded]]:
            nonlocal passes
            mask = self.selector.keep(statistics, calibrate(self.selector, [statistics], tokens).tau)
            left = 0.5**passes  # each pass takes half of what is left of the bar: nobody knows how many there will be
            encoded = code([mask], [layout], lambda done: on_progress(1 - left * (1 - done / 2)))
            passes += 1
            encoded = refine(encoded) if refined and refine is not None else encoded
            info = encoded[0].to_file("compact", token_model).info
            return Trial(encoded, info.tokens, info.mask_bits + info.token_bits_written, info.token_bits_written)

        cost = layout.token_bits if token_model is None else token_model.mean_bits
        limits = self._request, num_samples, layout, self.selector.s_max, cost
        found = spend(*limits, attempt)
        # Refined codes take other numbers of bits. Trials with the search are slow, so they start from the number of
        # tokens found without it.
        return (found if refine is None else spend(*limits, partial(attempt, refined=True), found.tokens)).result

    def _tau(self, statistics: Floats, num_samples: int) -> float:
        """The tau that meets the request for one utterance."""
        selector, config, request = self.selector, self._config, self._request
        if isinstance(selector, Stride):
            only = config.stride if config.downsampler == "conv" else None
            stride = request.stride(config.layout, config.stride, only)
            if request.tau is None and selector.span(stride) != stride:
                raise RateError(f"every {stride}-th step with s_max = {selector.s_max}; allowed: a stride up to s_max")
            return float(stride)
        if request.tau is not None:
            return request.tau
        if not request.is_open:
            target = request.tokens(num_samples, layout_of(config, None), selector.s_max)
        elif not math.isnan(self._tau_of_training):
            return self._tau_of_training
        else:
            target = max(1, round(config.keep_ratio * statistics.shape[0]))
        return calibrate(selector, [statistics], target).tau
