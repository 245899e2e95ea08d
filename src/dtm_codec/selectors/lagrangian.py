"""Lagrangian DP: the quality of exact DP at the cost of PLE (ours; the cost function is the paper's, Section 4.4)."""

from __future__ import annotations

import numpy as np

from .base import Mask
from .compiled import Floats, compiled
from .segments import SegmentSelector, segment_errors


class Lagrangian(SegmentSelector):
    """Minimises SSE + tau x number of segments over all segmentations, in one O(N s_max) pass.

    Exact DP fixes the number of segments of each utterance and pays O(N K s_max) for it. A price per segment
    instead lets utterances that change more have more of them, so at the same total number over a set the error
    is the least that any allocation reaches; and the price can be steered like any other tau.
    """

    name = "lagrangian"
    tau_means = "squared error that one more kept frame must save"

    def _decide_block(self, statistics: Floats, tau: float, start: int) -> Mask:
        return _cheapest(segment_errors(statistics), tau)


@compiled
def _cheapest(errors: Floats, price: float) -> Mask:
    """The segmentation of least errors + price x segments; of equals the one with longer spans."""
    count, s_max = errors.shape
    cost = np.zeros(count + 1)  # of the best segmentation of the first t frames
    spans = np.ones(count + 1, dtype=np.int64)  # of its last segment
    for end in range(1, count + 1):
        best = np.inf
        for span in range(1, min(s_max, end) + 1):
            candidate = cost[end - span] + (errors[end - 1, span - 1] + price)
            if candidate <= best:
                best = candidate
                spans[end] = span
        cost[end] = best
    mask = np.zeros(count, dtype=np.bool_)
    end = count
    while end > 0:
        end -= spans[end]
        mask[end] = True
    return mask
