"""Ratings of a listening test: read and written, screened (BS.1534-3), averaged with 95 % intervals, compared in pairs.

The listening test and the report of an evaluation both take their figures from here.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..metrics.intervals import weighted_mean
from ..system.optional import import_optional
from ..validation import read_json

REFERENCE = "reference"
"""The hidden reference, rated like any system."""

ANCHOR = "anchor"
"""The low-passed reference, rated like any system."""

REFERENCE_THRESHOLD = 90
"""BS.1534-3, Section 4.1.2: the hidden reference is meant to be rated this or higher ..."""

REFERENCE_TOLERANCE = 0.15
"""... in all but this share of a listener's trials; who misses it more often is left out."""

BOOTSTRAP_DRAWS = 10_000
CONFIDENCE = 0.95
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Rating(NamedTuple):
    """One judgement, 0 ... 100. `trial` is the utterance, `listener` is a label as in '7K3M-9QXT'."""

    listener: str
    trial: str
    system: str
    rating: float


@dataclass(frozen=True)
class SystemRating:
    """A system's result. Intervals are None where there is too little to estimate them."""

    system: str
    mean: float
    half_width: float | None
    """95 % t interval over all ratings, as the paper's table gives it (mean +- this)."""
    low: float | None
    high: float | None
    """95 % bootstrap interval over listeners, wider where they differ. Quote this one: ratings of one listener are not
    independent."""
    ratings: int

    @property
    def interval(self) -> tuple[float, float]:
        """The interval to quote or draw: over listeners, or over ratings where there is one listener."""
        half = self.half_width or 0.0
        return (self.mean - half, self.mean + half) if self.low is None or self.high is None else (self.low, self.high)


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
class RatingResults:
    scores: tuple[SystemRating, ...]
    pairs: tuple[PairTest, ...]
    listeners: tuple[str, ...]
    """Everyone who rated something."""
    excluded: tuple[str, ...]
    """Left out by post-screening."""

    @property
    def all_excluded(self) -> bool:
        """Whether there is nothing to show because nobody is left."""
        return bool(self.excluded) and len(self.excluded) == len(self.listeners)


def read_ratings(path: Path) -> list[Rating]:
    """Rows with listener, trial, system and rating (0 ... 100), as CSV with a heading or a JSON list of objects."""
    try:
        rows = read_json(path) if path.suffix == ".json" else csv.DictReader(path.read_text("utf-8").splitlines())
        ratings = [Rating(str(r["listener"]), str(r["trial"]), str(r["system"]), float(r["rating"])) for r in rows]
    except (OSError, ValueError, KeyError, TypeError):
        allowed = f"CSV or JSON with the fields {', '.join(Rating._fields)}"
        raise ConfigError(f"{path} holds no ratings; allowed: {allowed}") from None
    if not ratings or any(not 0 <= r.rating <= 100 for r in ratings):
        raise ConfigError(f"{path}: ratings must be there, and within 0 ... 100")
    return ratings


def ratings_csv(ratings: Iterable[Rating]) -> str:
    """All ratings, one a line, as `read_ratings` reads them."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(Rating._fields)
    writer.writerows([*map(inert, row[:3]), row[3]] for row in ratings)
    return buffer.getvalue()


def inert(text: str) -> str:
    """A name that a spreadsheet would run as a formula, quoted."""
    return f"'{text}" if text.startswith(FORMULA) else text


def analyse(ratings: Sequence[Rating], systems: Sequence[str], *, screening: bool = True) -> RatingResults:
    """Screen the listeners, then score and compare the systems, in the given order."""
    out = set(screened_out(ratings)) if screening else set()
    kept = [rating for rating in ratings if rating.listener not in out]
    everyone = sorted({rating.listener for rating in ratings})
    compared = [system for system in systems if system != ANCHOR]
    return RatingResults(
        scores=tuple(score for system in systems if (score := _score(kept, system)) is not None),
        pairs=_pair_tests(kept, compared),
        listeners=tuple(everyone),
        excluded=tuple(sorted(out)),
    )


def screened_out(ratings: Iterable[Rating]) -> list[str]:
    """Listeners who rated the hidden reference below 90 in more than 15 % of their trials."""
    by_listener: dict[str, list[float]] = defaultdict(list)
    for rating in ratings:
        if rating.system == REFERENCE:
            by_listener[rating.listener].append(rating.rating)
    return [
        listener
        for listener, values in by_listener.items()
        if sum(value < REFERENCE_THRESHOLD for value in values) > REFERENCE_TOLERANCE * len(values)
    ]


def _score(ratings: Sequence[Rating], system: str) -> SystemRating | None:
    by_listener: dict[str, list[float]] = defaultdict(list)
    for rating in ratings:
        if rating.system == system:
            by_listener[rating.listener].append(rating.rating)
    if not by_listener:
        return None
    values = np.concatenate([np.array(own, np.float64) for own in by_listener.values()])
    low = high = None
    if len(by_listener) > 1:  # whole listeners are drawn, each with all their ratings
        means, counts = zip(*((sum(own) / len(own), len(own)) for own in by_listener.values()), strict=True)
        estimate = weighted_mean(means, counts, BOOTSTRAP_DRAWS)
        low, high = estimate.low, estimate.high
    return SystemRating(system, float(values.mean()), _t_half_width(values), low, high, values.size)


def _t_half_width(values: npt.NDArray[np.float64]) -> float | None:
    stats = import_optional("scipy.stats", "web")
    if values.size < 2:
        return None
    quantile = stats.t.ppf(0.5 + CONFIDENCE / 2, values.size - 1)
    return float(quantile * values.std(ddof=1) / np.sqrt(values.size))


def _pair_tests(ratings: Sequence[Rating], systems: Sequence[str]) -> tuple[PairTest, ...]:
    stats = import_optional("scipy.stats", "web")
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
