"""Exact DP segmentation, CodecSlime's scheduler with the paper's cost (Section 4.4)."""

from __future__ import annotations

import numpy as np

from .base import Mask
from .compiled import Floats, compiled, tokens_of_block
from .segments import SegmentSelector, segment_errors


class ExactDP(SegmentSelector):
    """The segmentation of least SSE into exactly round(N / tau) spans of at most s_max frames. O(N K s_max)."""

    name = "dp"
    tau_means = "mean frames per kept frame"
    block = 2048

    def _decide_block(self, statistics: Floats, tau: float, start: int) -> Mask:
        tokens = tokens_of_block(start, start + len(statistics), tau, self.s_max)
        return _best_of(segment_errors(statistics), tokens)


@compiled
def _best_of(errors: Floats, tokens: int) -> Mask:
    """C[j, k] = min over s of C[j - s, k - 1] + L(j, s), and the way back."""
    count, s_max = errors.shape
    cost = np.full((s_max + 1, tokens + 1), np.inf)  # C of the last s_max + 1 values of j, as a ring
    cost[0, 0] = 0.0
    spans = np.ones((count + 1, tokens + 1), dtype=np.uint8)  # of the last segment
    for end in range(1, count + 1):
        row = cost[end % (s_max + 1)]
        row[:] = np.inf
        first = max(1, tokens - (count - end))  # fewer could not become `tokens` by the end
        last = min(end, tokens)
        for span in range(1, min(s_max, end) + 1):
            before = cost[(end - span) % (s_max + 1)]
            error = errors[end - 1, span - 1]
            for k in range(first, last + 1):
                candidate = before[k - 1] + error
                if candidate < row[k]:
                    row[k] = candidate
                    spans[end, k] = span
    mask = np.zeros(count, dtype=np.bool_)
    end = count
    for k in range(tokens, 0, -1):
        end -= spans[end, k]
        mask[end] = True
    return mask
