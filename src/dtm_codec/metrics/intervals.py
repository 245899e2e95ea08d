"""Means with 95 % intervals, by bootstrap over utterances; the seed is fixed, so that a table can be repeated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..system.optional import import_optional

DRAWS = 2000
SEED = 0
_LEVELS = (2.5, 97.5)

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value of a set, and where 95 % of resampled sets have it."""

    mean: float
    low: float
    high: float
    n: int
    """How many have a value: utterances, listeners or runs."""


def weighted_mean(values: npt.ArrayLike, weights: npt.ArrayLike, draws: int = DRAWS) -> Estimate:
    """sum(value x weight) / sum(weight): the plain mean for equal weights, the corpus rate for WER. (n,), (n,)"""
    value, weight = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    resampled = _resampled_means(value * weight, weight, draws)
    low, high = np.percentile(resampled, _LEVELS)
    return Estimate(float((value * weight).sum() / weight.sum()), float(low), float(high), value.size)


def relative_change(before: npt.ArrayLike, after: npt.ArrayLike, weights: npt.ArrayLike, better: int = 1) -> Estimate:
    """Gain in per cent from `before` to `after` on the same utterances, resampled in pairs; `better` is -1 for WER.

    As in the paper's Table 2: positive is an improvement, whichever way the metric points.
    """
    first, second, weight = (np.asarray(x, np.float64) for x in (before, after, weights))
    old, new = (_resampled_means(values * weight, weight, DRAWS) for values in (first, second))
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = better * 100 * (new - old) / np.abs(old)
        mean = float(better * 100 * ((second - first) @ weight) / np.abs(first @ weight))
    changes = changes[np.isfinite(changes)]
    low, high = np.percentile(changes, _LEVELS) if changes.size else (np.nan, np.nan)
    return Estimate(mean, float(low), float(high), first.size)


def over_runs(values: npt.ArrayLike) -> Estimate:
    """The mean of a few runs that differ in their seeds alone, two at least, and Student's interval of it. (n,)"""
    value = np.asarray(values, np.float64)
    quantile = import_optional("scipy.stats").t.ppf(_LEVELS[1] / 100, value.size - 1)
    reach = float(quantile * value.std(ddof=1) / np.sqrt(value.size))
    mean = float(value.mean())
    return Estimate(mean, mean - reach, mean + reach, value.size)


def _resampled_means(numerators: Values, denominators: Values, draws: int) -> Values:
    """(n,) -> (draws,); equal seeds draw equal utterances, so two systems are resampled in pairs."""
    drawn = np.random.default_rng(SEED).integers(0, numerators.size, (draws, numerators.size))
    means: Values = numerators[drawn].sum(axis=1) / denominators[drawn].sum(axis=1)
    return means
