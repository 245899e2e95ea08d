"""Means and intervals over utterances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.evaluation.pairs import MetricChange
from dtm_codec.metrics.intervals import over_runs, relative_change, weighted_mean

values = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@settings(deadline=None, max_examples=25)
@given(values)
def test_interval_lies_within_the_data_and_is_the_same_every_time(data: list[float]) -> None:
    estimate = weighted_mean(data, np.ones(len(data)))
    assert estimate == weighted_mean(data, np.ones(len(data)))
    assert min(data) - 1e-9 <= estimate.low <= estimate.high <= max(data) + 1e-9
    assert estimate.n == len(data)
    assert np.isclose(estimate.mean, np.mean(data))


def test_words_weigh_as_a_corpus() -> None:
    # 1 error in 2 words, 0 in 8: 10 % of the corpus, not 25 % on average
    assert weighted_mean([50.0, 0.0], [2, 8]).mean == 10.0


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    sets = random.normal(3.0, 1.0, (200, 40))
    covered = np.mean([e.low <= 3.0 <= e.high for e in (weighted_mean(s, np.ones(40)) for s in sets)])
    assert 0.88 <= covered <= 0.99


def test_change_is_positive_when_better_whichever_way_the_metric_points() -> None:
    assert np.isclose(relative_change([2.0, 2.0], [2.2, 2.2], [1, 1]).mean, 10)
    assert np.isclose(relative_change([5.0, 5.0], [4.0, 4.0], [1, 1], better=-1).mean, 20)


def test_a_change_from_nothing_is_not_a_number_of_per_cent() -> None:
    change = relative_change([0.0, 0.0], [0.0, 5.0], [1, 1], better=-1)
    assert change.mean == -np.inf
    assert MetricChange(0.0, 2.5, change).text == "from 0"


def test_paired_interval_is_narrower_than_the_spread_of_the_set() -> None:
    random = np.random.default_rng(2)
    before = random.uniform(1, 4, 50)
    change = relative_change(before, 1.05 * before, np.ones(50))
    assert np.isclose(change.low, 5)
    assert np.isclose(change.high, 5)


def test_few_runs_have_students_interval() -> None:
    pytest.importorskip("scipy")
    found = over_runs([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert found.high - found.mean == pytest.approx(4.303 / 3**0.5, abs=1e-3)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)
