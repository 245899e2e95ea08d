"""Which steps a bad connection loses: drawn for training and for measuring."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def draw_losses(
    count: int, share: float, longest: int, draw: np.random.Generator, unit: int = 1
) -> npt.NDArray[np.bool_]:
    """Lose about `share` of `count` steps, in bursts of 1 ... `longest` steps. -> (count,) bool, True = lost

    unit: steps of a packet; these are lost together, and bursts are whole packets.
    """
    packets, most = -(-count // unit), max(1, longest // unit)
    lost = np.zeros(packets, bool)
    # Bursts start so often that what none of them covers is 1 - share. Each start at i covers i ... i + length - 1.
    lengths = np.arange(1, most + 1)
    start = 1 - (1 - share) ** (1 / lengths.mean())
    starts = np.flatnonzero(draw.random(packets + most - 1) < start)  # some begin before the first step
    for begin, length in zip(starts - (most - 1), draw.integers(1, most + 1, starts.size), strict=True):
        lost[max(0, begin) : max(0, begin + length)] = True
    return np.repeat(lost, unit)[:count]
