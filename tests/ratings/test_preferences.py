import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dtm_codec.ratings import holm
from dtm_codec.ratings.preferences import Choice, analyse, binomial, choices_csv


def ab(first: int, second: int, ties: int = 0, pair: tuple[str, str] = ("p", "q")) -> list[Choice]:
    answers = [pair[0]] * first + [pair[1]] * second + [""] * ties
    return [Choice(f"L{i % 3}", f"u{i}", *pair, "", answer) for i, answer in enumerate(answers)]


def test_the_share_is_of_those_who_preferred_one():
    (result,) = analyse(ab(30, 10, ties=5), [("p", "q")], discrimination=False)
    assert (result.share.count, result.share.of, result.ties, result.listeners) == (30, 40, 5, 3)
    assert result.share.share == 0.75
    assert (result.share.low, result.share.high) == pytest.approx((0.588, 0.873), abs=1e-3)  # Clopper-Pearson's tables
    assert result.share.p == pytest.approx(0.0022, abs=1e-4)


def test_in_abx_right_is_what_x_was():
    choices = [Choice("L", f"u{i}", "p", "q", "pq"[i % 2], "pq"[(i % 2) ^ (i < 3)]) for i in range(16)]
    (result,) = analyse(choices, [("p", "q")], discrimination=True)
    assert (result.share.count, result.share.of, result.ties) == (13, 16, 0)
    assert result.share.p == pytest.approx(stats.binomtest(13, 16, alternative="greater").pvalue)


def test_pairs_are_corrected_together_and_nobody_is_no_result():
    pairs = [("p", "q"), ("p", "r"), ("q", "r")]
    choices = ab(30, 10) + ab(28, 12, pair=("p", "r"))
    one, two, none = analyse(choices, pairs, discrimination=False)
    raw = [stats.binomtest(k, 40).pvalue for k in (30, 28)]
    assert [one.share.p, two.share.p] == pytest.approx(holm(raw))
    assert (none.share.of, none.share.share, none.share.p) == (0, None, None)


@given(st.integers(0, 60), st.integers(1, 60))
def test_the_interval_is_clopper_pearsons(count: int, more: int):
    of = count + more
    found = binomial(count, of, "two-sided")
    low = stats.beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = stats.beta.ppf(0.975, count + 1, of - count)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.low <= found.share <= found.high


def test_an_interval_holds_the_truth_in_19_of_20_cases():
    draws = np.random.default_rng(0).binomial(30, 0.6, 1000)
    held = [f.low <= 0.6 <= f.high for f in (binomial(int(k), 30, "two-sided") for k in draws)]
    assert np.mean(held) >= 0.95


def test_the_csv_has_every_choice_and_runs_no_formula():
    text = choices_csv([Choice("7K3M-9QXT", "u1", "=cmd", "q", "", "=cmd")])
    assert list(csv.reader(io.StringIO(text))) == [
        ["listener", "trial", "first", "second", "x", "chosen"],
        ["7K3M-9QXT", "u1", "'=cmd", "q", "", "'=cmd"],
    ]
