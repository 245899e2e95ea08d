"""What merging a segment costs: the table that both optimal selectors search."""

from __future__ import annotations

import numpy as np

from ..config import LARGEST_SEGMENT
from .base import Array
from .compiled import CompiledSelector, Floats, compiled
from .distances import lagged_squares


class SegmentSelector(CompiledSelector):
    """A search over segmentations into spans of at most s_max frames, by their squared error."""

    s_max: int

    def __init__(self, s_max: int | None = None) -> None:
        assert s_max is not None  # as SelectorConfig requires
        assert 1 <= s_max <= LARGEST_SEGMENT
        super().__init__(s_max)
        self.context = s_max - 1

    def _analyse(self, features: Array) -> Array:
        """Squared distances at lags 1 ... s_max - 1. features: (..., N, D) -> (..., N, s_max - 1)."""
        return lagged_squares(features, self.s_max - 1)


@compiled
def segment_errors(squares: Floats) -> Floats:
    """SSE of every segment. squares: (N, s_max - 1) -> (N, s_max) float64, [t, s - 1] for the s frames that end at t.

    The squared error about the mean of s vectors is the sum over their pairs of squared distances, divided by s.
    The pairs of a segment are those of the segment one shorter that ends at t - 1, and those with frame t: nothing is
    subtracted, so no error is ever negative, and no prefix sum grows with the length of the audio.
    """
    count, lags = squares.shape
    errors = np.zeros((count, lags + 1))
    pairs = np.zeros(lags + 1)  # of the segments that end at t, by their length
    for t in range(count):
        for length in range(min(t, lags), 0, -1):  # length + 1 frames; longest first, as each needs the last t's
            pairs[length] = pairs[length - 1]
        total = 0.0
        for length in range(1, min(t, lags) + 1):
            total += squares[t, length - 1]
            pairs[length] += total
            errors[t, length] = pairs[length] / (length + 1)
    return errors
