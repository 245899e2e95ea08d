"""When a run must be over, and how much of that time its end takes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

MARGIN = 1.5
"""Safety factor on the measured end of a run: other programs use the machine too."""

STATISTICS_SHARE, STATISTICS_MAX_S = 0.05, 300.0
"""Token statistics get this share of a timed run, and not more than this."""


class Deadline:
    """Of a run that has `minutes`, from now on. What its end consists of is measured when it is done for the first
    time, so that the run stops training early enough."""

    def __init__(self, minutes: float) -> None:
        self._at = time.monotonic() + 60 * minutes
        self.statistics_s = min(60 * minutes * STATISTICS_SHARE, STATISTICS_MAX_S) if math.isfinite(minutes) else 0.0
        self._took: dict[str, float] = {}

    @property
    def is_set(self) -> bool:
        return math.isfinite(self._at)

    @property
    def left(self) -> float:
        """Seconds."""
        return self._at - time.monotonic()

    @contextmanager
    def measured(self, part: str, times: int = 1) -> Iterator[None]:
        """Note how long a part of the end takes. `times`: how often the end does what the block does once.

        If it took longer the last time, the mean counts: steps differ.
        """
        started = time.monotonic()
        yield
        took, before = (time.monotonic() - started) * times, self._took.get(part, 0.0)
        self._took[part] = max(took, (took + before) / 2)

    def needs(self, *parts: str) -> float:
        """Seconds that these parts of the end may take; all of them if none is named."""
        return MARGIN * sum(self._took.get(part, 0.0) for part in parts or self._took)

    def is_near(self) -> bool:
        """Whether the end must begin now, since one more step would be one too many."""
        return self.left <= self.needs() + self.statistics_s
