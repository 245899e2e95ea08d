"""Decisions that are sequential by nature: one compiled pass on the CPU, one utterance at a time."""

from __future__ import annotations

import functools
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ..system.optional import import_optional
from .base import Array, Mask, Selector

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Floats = npt.NDArray[np.floating]


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile with numba at the first call, kept on disk where possible; importing stays free of numba."""

    @functools.cache
    def machine_code() -> Callable[Parameters, Result]:
        njit = import_optional("numba", "torch").njit

        try:
            compiler = njit(cache=True, nogil=True)(function)
        except RuntimeError:  # nowhere to keep it: a read-only installation without a home
            compiler = njit(nogil=True)(function)
        return cast("Callable[Parameters, Result]", compiler)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return machine_code()(*args, **kwargs)

    return call


class CompiledSelector(Selector):
    """A selector that decides in numpy, in near-equal blocks of at most `block` frames."""

    def _decide(self, statistics: Array, tau: float) -> Mask:
        *batch, frames, width = statistics.shape
        utterances = statistics.reshape(math.prod(batch), frames, width)
        blocks = -(-frames // self.block) if self.block else 1
        edges = [frames * block // blocks for block in range(blocks + 1)]
        mask = np.concatenate(
            [
                self._decide_block(utterance[start:end], tau, start)
                for utterance in utterances
                for start, end in itertools.pairwise(edges)
            ]
        )
        return mask.reshape(*batch, frames)

    @abstractmethod
    def _decide_block(self, statistics: Floats, tau: float, start: int) -> Mask:
        """Keep mask of frames start ... start + n - 1. statistics: (n, C) -> (n,)."""


def tokens_of_block(start: int, end: int, tau: float, s_max: int | None) -> int:
    """K of a block at a mean span of tau: the blocks of N frames share round(N / tau) tokens.

    At least one, and as many as spans of s_max need.
    """
    tokens = math.floor(end / tau + 0.5) - math.floor(start / tau + 0.5)
    fewest = 1 if s_max is None else -(-(end - start) // s_max)
    return min(max(tokens, fewest), end - start)
