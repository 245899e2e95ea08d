"""The keep mask, range coded under an adaptive model (paper Section 3.4 counts it as one bit a step).

A path-length selector keeps steps in rhythm: what comes next depends on how long the current span is and how long the
last one was. These two make 30 contexts, and each counts how often it led to a kept step. The counts start from
what path length equalization of log-mel spectrograms gives on read speech at 25 to 60 % kept steps, weigh that as
five observations, and forget by halving, so that they adapt to any other selector too. Coding saves bits from about
2 s of audio on. Longer histories and mixed contexts gained less than 1 % of the mask on real speech. The rules are part
of the file format.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BitstreamError
from . import range_coder

MAX_SPAN = 6
"""Longer spans so far count as this."""
MAX_PREVIOUS = 4
"""A longer last span counts as this; 0 = there was none."""

PRIOR = (
    *(4, 64, 26, 15, 12),
    *(5, 45, 43, 30, 13),
    *(11, 38, 51, 44, 19),
    *(11, 28, 42, 45, 25),
    *(11, 23, 33, 38, 26),
    *(6, 17, 19, 21, 17),
)
"""Initial weight of 'kept', of PRIOR_TOTAL: a row for each span so far, a column for each last span."""
PRIOR_TOTAL = 80
OBSERVATION = 16
"""What a step adds to the weight of what it was."""
MAX_TOTAL = 1536
"""Past this, both weights are halved."""

PROBABILITY_BITS = 12
MIN_PROBABILITY = 64
"""Of 2^12: no step costs less than log2(64/63) = 0.0227 bits ..."""
MAX_STEPS_PER_BYTE = 353
"""... so that a byte holds at most 8 / 0.0227 steps."""


class _KeepModel:
    """Weights of 'kept' and 'masked' in each context."""

    def __init__(self) -> None:
        self._kept = list(PRIOR)
        self._masked = [PRIOR_TOTAL - kept for kept in PRIOR]
        self._span, self._previous = 1, 0  # the first step is always kept and not coded
        self._context = 0

    def table(self) -> Any:
        """For the next step: symbol 1 = kept."""
        kept = self._kept[self._context]
        return _table((kept << PROBABILITY_BITS) // (kept + self._masked[self._context]))

    def update(self, kept: int) -> None:
        """Learn what the step was."""
        context = self._context
        if kept:
            self._kept[context] += OBSERVATION
            self._previous = min(self._span, MAX_PREVIOUS)
            self._span = 1
        else:
            self._masked[context] += OBSERVATION
            self._span = min(self._span + 1, MAX_SPAN)
        if self._kept[context] + self._masked[context] > MAX_TOTAL:
            self._kept[context] = (self._kept[context] + 1) >> 1
            self._masked[context] = (self._masked[context] + 1) >> 1
        self._context = (self._span - 1) * (MAX_PREVIOUS + 1) + self._previous


@cache
def _table(probability: int) -> Any:
    one = 1 << PROBABILITY_BITS
    probability = min(max(probability, MIN_PROBABILITY), one - MIN_PROBABILITY)
    return range_coder.table(np.array([one - probability, probability]) * (range_coder.TOTAL // one))


def encode(mask: npt.NDArray[np.bool_]) -> bytes:
    """(N,) bool, the first True -> bytes."""
    model, encoder = _KeepModel(), range_coder.Encoder()
    for kept in mask[1:].tobytes():  # 0 or 1
        encoder.encode(kept, model.table())
        model.update(kept)
    return encoder.finish()


def decode(data: bytes, steps: int) -> npt.NDArray[np.bool_]:
    """Bytes -> (N,) bool; the number of steps is checked against that of the bytes before anything is allocated."""
    if steps - 1 > MAX_STEPS_PER_BYTE * len(data):
        raise BitstreamError(
            f"a mask of {steps} steps in {len(data)} bytes; allowed: at most {MAX_STEPS_PER_BYTE * len(data) + 1} steps"
        )
    model = _KeepModel()
    mask = bytearray(steps)
    mask[0] = 1
    with range_coder.decoding(data) as read:
        for step in range(1, steps):
            mask[step] = kept = read(model.table())
            model.update(kept)
    return np.frombuffer(mask, dtype=np.bool_)
