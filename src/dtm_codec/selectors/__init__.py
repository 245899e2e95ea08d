"""Features -> keep mask: PLE and what the paper compares it with (Table 6), one file each, and Lagrangian DP."""

from __future__ import annotations

from collections.abc import Mapping

from ..config import SelectorConfig, SelectorName
from .base import Selector, nmse
from .dp import ExactDP
from .greedy import Greedy
from .lagrangian import Lagrangian
from .peaks import Peaks
from .ple import PLE
from .random import Random
from .stride import Stride
from .threshold import Threshold

__all__ = [
    "PLE",
    "SELECTORS",
    "ExactDP",
    "Greedy",
    "Lagrangian",
    "Peaks",
    "Random",
    "Selector",
    "Stride",
    "Threshold",
    "build",
    "nmse",
]

SELECTORS: Mapping[SelectorName, type[Selector]] = {
    "ple": PLE,
    "stride": Stride,
    "random": Random,
    "threshold": Threshold,
    "peaks": Peaks,
    "greedy": Greedy,
    "dp": ExactDP,
    "lagrangian": Lagrangian,
}
"""Every selector by the name that configurations give it."""


def build(config: SelectorConfig) -> Selector:
    return SELECTORS[config.name].from_config(config)
