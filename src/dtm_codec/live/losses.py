"""Which steps a bad connection loses: drawn for training and for measuring."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def draw_losses(count: int, share: float, longest: int, draw: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Lose about `share` of `count` steps, in bursts of 1 ... `longest` steps. -> (count,) bool, True = lost"""
    lost = np.zeros(count, bool)
    # Bursts start so often that what none of them covers is 1 - share. Each start at i covers i ... i + length - 1.
    lengths = np.arange(1, longest + 1)
    start = 1 - (1 - share) ** (1 / lengths.mean())
    starts = np.flatnonzero(draw.random(count + longest - 1) < start)  # some begin before the first step
    for begin, length in zip(starts - (longest - 1), draw.integers(1, longest + 1, starts.size), strict=True):
        lost[max(0, begin) : max(0, begin + length)] = True
    return lost
