import csv
import io
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dtm_codec.ratings import Rating, analyse, holm, ratings_csv, screened_out
from dtm_codec.web.listening.plots import plot


def panel(scores: dict[str, list[list[int]]]) -> list[Rating]:
    """system -> listener -> ratings of trials"""
    return [
        Rating(f"L{i:03d}", f"u{t}", system, value)
        for system, listeners in scores.items()
        for i, values in enumerate(listeners)
        for t, value in enumerate(values)
    ]


def test_means_and_t_intervals_are_the_textbook_ones():
    values = [[80, 90], [70, 60], [85, 75]]
    (score,) = analyse(panel({"x": values}), ["x"]).scores
    flat = np.ravel(values)
    low, high = stats.t.interval(0.95, 5, loc=flat.mean(), scale=stats.sem(flat))
    assert score.mean == pytest.approx(flat.mean())
    assert score.half_width == pytest.approx((high - low) / 2)
    assert score.ratings == 6


def test_the_paper_s_interval_is_over_ratings():
    """19 listeners x 8 ratings and a deviation of about 15 give the +- 2.4 of the paper's Table 3."""
    rng = np.random.default_rng(0)
    values = np.clip(rng.normal(80, 15, (19, 8)), 0, 100).round().astype(int).tolist()
    (score,) = analyse(panel({"x": values}), ["x"]).scores
    assert 1.8 < score.half_width < 2.8


def test_where_listeners_differ_the_interval_over_listeners_is_wider():
    agreeing = [[40, 60, 50, 50]] * 8
    differing = [[10 * i + 10] * 4 for i in range(8)]
    one, two = analyse(panel({"agree": agreeing, "differ": differing}), ["agree", "differ"]).scores
    assert one.high - one.low < 1
    assert two.high - two.low > 2 * two.half_width


def test_too_little_gives_no_interval_instead_of_a_wrong_one():
    (score,) = analyse(panel({"x": [[50]]}), ["x"]).scores
    assert (score.mean, score.half_width, score.low, score.high) == (50, None, None, None)
    assert analyse([], ["x"]).scores == ()
    assert analyse([], ["x", "y"]).pairs == ()


@pytest.mark.parametrize(
    ("references", "out"),
    [
        ([100] * 8, False),
        ([100] * 7 + [89], False),  # 1 of 8 is 12.5 %
        ([100] * 6 + [89] * 2, True),  # 25 %
        ([90] * 8, False),
        ([89], True),
        ([100] * 17 + [0] * 3, False),  # 15 % is not more than 15 %
        ([100] * 16 + [0] * 4, True),
    ],
)
def test_screening_is_that_of_bs1534(references: list[int], out: bool):
    ratings = panel({"reference": [references], "x": [[50] * len(references)]})
    assert screened_out(ratings) == (["L000"] if out else [])


def test_who_is_left_out_counts_nowhere():
    ratings = panel({"reference": [[100], [100], [20]], "x": [[60], [70], [0]], "anchor": [[30], [30], [100]]})
    results = analyse(ratings, ["reference", "anchor", "x"])
    assert results.excluded == ("L002",)
    assert [score.mean for score in results.scores] == [100, 30, 65]
    assert analyse(ratings, ["x"], screening=False).scores[0].mean == pytest.approx(130 / 3)


def test_pair_tests_are_those_of_scipy_and_corrected():
    rng = np.random.default_rng(3)
    a = rng.integers(60, 90, (10, 6))
    b = a - rng.integers(0, 8, (10, 6))
    c = rng.integers(20, 60, (10, 6))
    results = analyse(panel({"a": a.tolist(), "b": b.tolist(), "c": c.tolist()}), ["a", "b", "c"])
    pairs = {(pair.first, pair.second): pair for pair in results.pairs}
    assert set(pairs) == {("a", "b"), ("a", "c"), ("b", "c")}
    raw = {("a", "b"): (a, b), ("a", "c"): (a, c), ("b", "c"): (b, c)}
    wilcoxon = holm([float(stats.wilcoxon((x - y).ravel()).pvalue) for x, y in raw.values()])
    t_test = holm([float(stats.ttest_rel(x.mean(axis=1), y.mean(axis=1)).pvalue) for x, y in raw.values()])
    for key, w, t in zip(raw, wilcoxon, t_test, strict=True):
        assert pairs[key].wilcoxon_p == pytest.approx(w)
        assert pairs[key].t_test_p == pytest.approx(t)
        assert pairs[key].difference == pytest.approx((raw[key][0] - raw[key][1]).mean())
        assert pairs[key].pairs == 60


def test_equal_systems_are_not_told_apart():
    same = [[50, 60], [70, 80], [90, 40]]
    (pair,) = analyse(panel({"a": same, "b": same}), ["a", "b"]).pairs
    assert (pair.difference, pair.wilcoxon_p, pair.t_test_p) == (0, 1.0, None)


def test_only_what_both_systems_have_is_paired():
    ratings = panel({"a": [[50, 60, 70]], "b": [[40]]})
    assert analyse(ratings, ["a", "b"]).pairs[0].pairs == 1


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, None]) == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06), None]


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_a_p_and_keeps_their_order(ps: list[float]):
    corrected = holm(ps)
    assert all(p <= c <= 1 for p, c in zip(ps, corrected, strict=True))
    order = np.argsort(ps, kind="stable")
    assert all(corrected[a] <= corrected[b] for a, b in itertools.pairwise(order))


def test_the_csv_is_read_back_as_written_and_runs_no_formula():
    ratings = [Rating("L001", 'u,"1"', "=cmd|x", 5), Rating("L001", "u2", "VFR 800", 100)]
    rows = list(csv.reader(io.StringIO(ratings_csv(ratings))))
    assert rows == [
        ["listener", "trial", "system", "rating"],
        ["L001", 'u,"1"', "'=cmd|x", "5"],
        ["L001", "u2", "VFR 800", "100"],
    ]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_plot_is_drawn(tmp_path, suffix: str):
    pytest.importorskip("matplotlib")
    results = analyse(panel({"reference": [[100], [95]], "$\\x_1$ <b>": [[50], [60]]}), ["reference", "$\\x_1$ <b>"])
    plot(results, tmp_path / f"out{suffix}", "A $title")
    assert (tmp_path / f"out{suffix}").stat().st_size > 2000
