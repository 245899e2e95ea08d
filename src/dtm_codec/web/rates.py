"""Which bitrates the demo's slider offers."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import CodecConfig
from ..layout import Layout

LOWEST_KEEP_RATIO = 0.1
"""The slider starts where every tenth step is kept, and ends where all are."""


@dataclass(frozen=True)
class RateRange:
    """In total bits a second."""

    lowest: int
    highest: int
    default: int


def rate_range(config: CodecConfig) -> RateRange:
    """Eq. 5 at the lowest, the full and the trained keep ratio; a fixed rate offers one value."""
    stride = config.stride if config.is_fixed_rate else None
    layout = Layout(config.sample_rate, config.hop_length, config.quantizer.token_bits, stride)
    if stride is not None:
        only = round(layout.bitrate(config.frame_rate / stride))
        return RateRange(only, only, only)
    ratios = (LOWEST_KEEP_RATIO, 1.0, config.keep_ratio)
    return RateRange(*(round(layout.bitrate(ratio * config.frame_rate) / 10) * 10 for ratio in ratios))
