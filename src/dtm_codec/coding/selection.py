"""Which steps of an utterance are kept: a selector, a request for a rate, and the tau that meets it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from ..backends.base import Backend, Floats, Mask
from ..bitstream.token_coder import TokenModel
from ..config import CodecConfig, SelectorConfig
from ..encoded import Encoded
from ..errors import RateError
from ..layout import Layout
from ..rate.calibration import calibrate
from ..rate.request import RateRequest
from ..rate.spending import Trial, spend
from ..selectors import build
from ..selectors.stride import Stride

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
    return Layout(config.sample_rate, config.hop_length, config.quantizer.token_bits, stride)


def own_layout(config: CodecConfig) -> Layout:
    """How a model's streams are laid out with its own selector."""
    return layout_of(config, config.stride if config.is_fixed_rate else None)


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


class Choice:
    """What was asked of an encoding, as masks are made by it."""

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
        # Other codes take other bits. A search through the decoder is slow, so it begins where it would end without.
        return (found if refine is None else spend(*limits, partial(attempt, refined=True), found.tokens)).result

    def _tau(self, statistics: Floats, num_samples: int) -> float:
        """The tau that meets the request for one utterance."""
        selector, config, request = self.selector, self._config, self._request
        if isinstance(selector, Stride):
            only = config.stride if config.downsampler == "conv" else None
            stride = request.stride(own_layout(config), config.stride, only)
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
