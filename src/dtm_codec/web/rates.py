"""Which bitrates the demo's slider offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ..config import DEFAULT_QUALITY, CodecConfig, Quality
from ..rate.request import quality_bitrate

LOWEST_KEEP_RATIO = 0.1
"""The slider starts where every tenth step is kept, and ends where all are."""

MOST_WRITTEN = 0.8
"""Of the nominal rate of all steps. Few files take more as written."""


@dataclass(frozen=True)
class RateRange:
    """In total bits a second."""

    lowest: int
    highest: int
    default: int


def rate_range(config: CodecConfig, *, written: bool = False) -> RateRange:
    """Eq. 5 at the lowest and the full keep ratio, and the default of files; a fixed rate offers one value.

    written: as far as bits as written reach
    """
    layout = config.layout
    if layout.stride is not None:
        only = round(layout.bitrate(config.frame_rate / layout.stride))
        return RateRange(only, only, only)
    lowest, highest = (layout.bitrate(ratio * config.frame_rate) for ratio in (LOWEST_KEEP_RATIO, 1.0))
    if written:
        highest *= MOST_WRITTEN
    return RateRange(10 * round(lowest / 10), 10 * round(highest / 10), qualities(config)[DEFAULT_QUALITY])


def qualities(config: CodecConfig) -> dict[Quality, int]:
    """Bits a second by name; none at a fixed rate."""
    if config.is_fixed_rate:
        return {}
    layout = config.layout
    return {name: round(quality_bitrate(name, layout, config.keep_ratio)) for name in get_args(Quality)}
