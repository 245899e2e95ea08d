"""Choices of a preference test (A/B) or a discrimination test (A/B/X): shares with exact binomial 95 % intervals.

The test on the web and its results on the command line both take their figures from here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..system.optional import import_optional
from . import CONFIDENCE, holm, inert

CHANCE = 0.5


class Choice(NamedTuple):
    """One answer. `first` and `second` are the systems of the pair, in the order of the test, not of the page."""

    listener: str
    trial: str
    first: str
    second: str
    x: str
    """A/B/X: the system that X was; empty in A/B."""
    chosen: str
    """A/B: the system that sounds better, empty if neither does. A/B/X: the system that X was taken for."""


@dataclass(frozen=True)
class Share:
    """How many of how many, with the exact (Clopper-Pearson) 95 % interval; None where there is nothing to count."""

    count: int
    of: int
    share: float | None
    low: float | None
    high: float | None
    p: float | None
    """The chance of a share at least this far from a half by guessing; at least this large where systems are told
    apart. Holm-corrected over the pairs of a test."""


@dataclass(frozen=True)
class PairResult:
    first: str
    second: str
    share: Share
    """A/B: the first is preferred, of the choices for either. A/B/X: X is told right."""
    ties: int
    """A/B: neither sounds better; not counted in the share."""
    listeners: int


def analyse(choices: Sequence[Choice], pairs: Iterable[tuple[str, ...]], *, discrimination: bool) -> list[PairResult]:
    """Every pair of the test, in its order. discrimination: A/B/X, where more than half right is what matters."""
    rows = []
    for first, second in pairs:
        own = [choice for choice in choices if (choice.first, choice.second) == (first, second)]
        decided = [choice for choice in own if choice.chosen]
        right = [c.chosen == (c.x if discrimination else first) for c in decided]
        share = binomial(sum(right), len(right), "greater" if discrimination else "two-sided")
        rows.append((first, second, share, len(own) - len(decided), len({choice.listener for choice in own})))
    corrected = holm([share.p for _, _, share, *_ in rows])
    return [
        PairResult(first, second, Share(s.count, s.of, s.share, s.low, s.high, p), ties, listeners)
        for (first, second, s, ties, listeners), p in zip(rows, corrected, strict=True)
    ]


def binomial(count: int, of: int, alternative: str) -> Share:
    """alternative: "two-sided", or "greater" than chance."""
    if not of:
        return Share(0, 0, None, None, None, None)
    stats: Any = import_optional("scipy.stats", "web")
    interval = stats.binomtest(count, of).proportion_ci(CONFIDENCE, method="exact")
    p = stats.binomtest(count, of, CHANCE, alternative=alternative).pvalue
    return Share(count, of, count / of, float(interval.low), float(interval.high), float(p))


def choices_csv(choices: Iterable[Choice]) -> str:
    """All choices, one a line."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(Choice._fields)
    writer.writerows(map(inert, row) for row in choices)
    return buffer.getvalue()
