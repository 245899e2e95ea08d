"""From ratings to a table: post-screening (BS.1534-3), means with 95 % intervals, pairwise tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import import_extra
from .definition import ANCHOR, REFERENCE
from .store import Rating

REFERENCE_THRESHOLD = 90
"""BS.1534-3, Section 4.1.2: the hidden reference is meant to be rated this or higher ..."""

REFERENCE_TOLERANCE = 0.15
"""... in all but this share of a listener's trials; who misses it more often is left out."""

BOOTSTRAP_DRAWS = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Score:
    """A system's result. Intervals are None where there is too little to estimate them."""

    system: str
    mean: float
    half_width: float | None
    """95 % t interval over all ratings, as the paper's table gives it (mean +- this)."""
    low: float | None
    high: float | None
    """95 % bootstrap interval over listeners: wider where listeners differ, for their ratings are not independent."""
    ratings: int


@dataclass(frozen=True)
class PairTest:
    """Is one system rated higher than another? Paired by listener and trial, p-values Holm-corrected over all pairs."""

    first: str
    second: str
    difference: float
    """Mean of first - second."""
    pairs: int
    wilcoxon_p: float | None
    """Signed-rank test over the rating pairs."""
    t_test_p: float | None
    """Paired t test over the listeners' mean differences: fewer assumptions about independence, less power."""


@dataclass(frozen=True)
class Results:
    """The evaluated test."""

    scores: tuple[Score, ...]
    pairs: tuple[PairTest, ...]
    listeners: tuple[str, ...]
    """Everyone who rated something."""
    excluded: tuple[str, ...]
    """Left out by post-screening."""


def evaluate(ratings: Sequence[Rating], systems: Sequence[str], *, screening: bool = True) -> Results:
    """Screen the listeners, then score and compare the systems, in the given order."""
    out = set(screened_out(ratings)) if screening else set()
    kept = [rating for rating in ratings if rating.listener not in out]
    everyone = sorted({rating.listener for rating in ratings})
    compared = [system for system in systems if system != ANCHOR]
    return Results(
        scores=tuple(score for system in systems if (score := _score(kept, system)) is not None),
        pairs=_pair_tests(kept, compared),
        listeners=tuple(everyone),
        excluded=tuple(sorted(out)),
    )


def screened_out(ratings: Iterable[Rating]) -> list[str]:
    """Listeners who rated the hidden reference below 90 in more than 15 % of their trials."""
    by_listener: dict[str, list[int]] = {}
    for rating in ratings:
        if rating.system == REFERENCE:
            by_listener.setdefault(rating.listener, []).append(rating.rating)
    return [
        listener
        for listener, values in by_listener.items()
        if sum(value < REFERENCE_THRESHOLD for value in values) > REFERENCE_TOLERANCE * len(values)
    ]


def _score(ratings: Sequence[Rating], system: str) -> Score | None:
    own = [rating for rating in ratings if rating.system == system]
    if not own:
        return None
    values = np.array([rating.rating for rating in own], dtype=np.float64)
    low, high = _bootstrap(own)
    return Score(system, float(values.mean()), _t_half_width(values), low, high, values.size)


def _t_half_width(values: npt.NDArray[np.float64]) -> float | None:
    stats = import_extra("scipy.stats", "web")

    if values.size < 2:
        return None
    quantile = stats.t.ppf(0.5 + CONFIDENCE / 2, values.size - 1)
    return float(quantile * values.std(ddof=1) / np.sqrt(values.size))


def _bootstrap(ratings: Sequence[Rating]) -> tuple[float | None, float | None]:
    """Percentile interval of the mean when whole listeners are drawn with replacement."""
    by_listener: dict[str, list[int]] = {}
    for rating in ratings:
        by_listener.setdefault(rating.listener, []).append(rating.rating)
    if len(by_listener) < 2:
        return None, None
    sums = np.array([sum(values) for values in by_listener.values()], dtype=np.float64)
    counts = np.array([len(values) for values in by_listener.values()], dtype=np.float64)
    draws = np.random.default_rng(0).integers(sums.size, size=(BOOTSTRAP_DRAWS, sums.size))
    means = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.quantile(means, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    return float(low), float(high)


def _pair_tests(ratings: Sequence[Rating], systems: Sequence[str]) -> tuple[PairTest, ...]:
    stats = import_extra("scipy.stats", "web")

    table = {(rating.system, rating.listener, rating.trial): rating.rating for rating in ratings}
    cells = sorted({(rating.listener, rating.trial) for rating in ratings})
    rows = []
    for first, second in itertools.combinations(systems, 2):
        both = [cell for cell in cells if (first, *cell) in table and (second, *cell) in table]
        if not both:
            continue
        differences = np.array([table[(first, *cell)] - table[(second, *cell)] for cell in both], dtype=np.float64)
        names = np.array([listener for listener, _ in both])
        means = np.array([differences[names == listener].mean() for listener in np.unique(names)])
        wilcoxon = float(stats.wilcoxon(differences).pvalue) if np.any(differences) else 1.0
        t_test = float(stats.ttest_1samp(means, 0.0).pvalue) if means.size > 1 and np.ptp(means) > 0 else None
        rows.append((first, second, float(differences.mean()), len(both), wilcoxon, t_test))
    wilcoxon_ps = holm([row[4] for row in rows])
    t_test_ps = holm([row[5] for row in rows])
    return tuple(PairTest(*row[:4], w, t) for row, w, t in zip(rows, wilcoxon_ps, t_test_ps, strict=True))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction; None stays None and does not count as a test."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        corrected[i] = largest
    return corrected
