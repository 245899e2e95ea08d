"""Exact and Lagrangian DP against every segmentation there is, and against each other on a set."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.rate.calibration import calibrate
from dtm_codec.selectors import PLE, ExactDP, Greedy, Lagrangian, Stride, nmse
from dtm_codec.selectors.base import Mask
from dtm_codec.selectors.segments import segment_errors

seeds = st.integers(0, 100_000)


def walk(seed: int, count: int, dim: int = 3) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(count, dim).cumsum(0)


def speechlike(seed: int, frames: int, dim: int = 24) -> torch.Tensor:
    """AR(1) vectors whose rate of change itself varies, within an utterance and between them. -> (N, D)"""
    generator = torch.Generator().manual_seed(seed)
    liveliness = float(torch.rand(1, generator=generator)) + 0.2
    z, rows = torch.randn(dim, generator=generator), []
    for t in range(frames):
        change = min(0.95, liveliness * (0.5 + 0.5 * math.sin(t / 7)) ** 4 + 0.01)
        z = math.sqrt(1 - change) * z + math.sqrt(change) * torch.randn(dim, generator=generator)
        rows.append(z)
    return torch.stack(rows)


def sse(z: torch.Tensor, mask: Mask) -> float:
    """Squared error about segment means, from the definition."""
    z = z.double()
    starts = [*np.flatnonzero(mask).tolist(), len(z)]
    return sum(float((z[a:b] - z[a:b].mean(0)).square().sum()) for a, b in itertools.pairwise(starts))


def all_masks(count: int, s_max: int) -> list[Mask]:
    """Every keep mask whose spans are at most s_max."""
    masks = []
    for rest in itertools.product([True, False], repeat=count - 1):
        mask = np.array([True, *rest])
        starts = [*np.flatnonzero(mask).tolist(), count]
        if max(b - a for a, b in itertools.pairwise(starts)) <= s_max:
            masks.append(mask)
    return masks


@settings(max_examples=50, deadline=None)
@given(seed=seeds, count=st.integers(1, 30), s_max=st.integers(1, 6))
def test_segment_errors_are_squared_errors_about_the_mean(seed: int, count: int, s_max: int) -> None:
    z = walk(seed, count)
    errors = segment_errors(Lagrangian(s_max=s_max).statistics(z))
    assert errors.shape == (count, s_max)
    assert errors.min() >= 0
    for end in range(1, count + 1):
        for span in range(1, min(s_max, end) + 1):
            segment = z[end - span : end].double()
            expected = float((segment - segment.mean(0)).square().sum())
            assert errors[end - 1, span - 1] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(1, 10), s_max=st.integers(1, 4), tau=st.floats(0.5, 12))
def test_exact_dp_is_the_best_of_all_segmentations_into_k(seed: int, count: int, s_max: int, tau: float) -> None:
    z, selector = walk(seed, count), ExactDP(s_max=s_max)
    tokens = min(max(1, math.floor(count / tau + 0.5), -(-count // s_max)), count)
    mask = selector.keep(selector.statistics(z), tau)
    assert int(mask.sum()) == tokens
    best = min(sse(z, candidate) for candidate in all_masks(count, s_max) if int(candidate.sum()) == tokens)
    assert sse(z, mask) == pytest.approx(best, rel=1e-4, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(1, 10), s_max=st.integers(1, 4), price=st.floats(1e-3, 30))
def test_lagrangian_is_the_best_of_all_segmentations_at_its_price(
    seed: int, count: int, s_max: int, price: float
) -> None:
    z, selector = walk(seed, count), Lagrangian(s_max=s_max)
    mask = selector.keep(selector.statistics(z), price)
    best = min(sse(z, candidate) + price * int(candidate.sum()) for candidate in all_masks(count, s_max))
    assert sse(z, mask) + price * int(mask.sum()) == pytest.approx(best, rel=1e-4, abs=1e-5)


@settings(max_examples=100, deadline=None)
@given(seed=seeds, count=st.integers(1, 60), s_max=st.integers(1, 8), first=st.floats(0, 4), second=st.floats(0, 4))
def test_lagrangian_count_never_grows_with_the_price(
    seed: int, count: int, s_max: int, first: float, second: float
) -> None:
    selector = Lagrangian(s_max=s_max)
    statistics = selector.statistics(walk(seed, count))
    kept = [int(selector.keep(statistics, 10 ** (price - 2)).sum()) for price in sorted((first, second))]
    assert kept[0] >= kept[1]


def test_constant_frames_get_the_longest_spans() -> None:
    for selector in (Lagrangian(s_max=4), ExactDP(s_max=4)):
        mask = selector.keep(selector.statistics(torch.ones(10, 3)), 100.0)
        assert int(mask.sum()) == 3


def test_blocks_of_exact_dp_share_the_tokens_of_the_whole() -> None:
    selector = ExactDP(s_max=4)
    mask = selector.keep(np.random.default_rng(0).random((5001, 3)), 2.2)
    assert int(mask.sum()) == round(5001 / 2.2)


@pytest.mark.parametrize("keep_ratio", [0.35, 0.5, 0.7])
def test_lagrangian_beats_exact_dp_on_a_set_at_the_same_total(keep_ratio: float) -> None:
    """A price per segment spends tokens across utterances too; exact DP with K of its own for each cannot."""
    utterances = [speechlike(seed, 150 + 40 * seed) for seed in range(6)]
    exact, priced = ExactDP(s_max=4), Lagrangian(s_max=4)
    exact_masks = [exact.keep(exact.statistics(z), 1 / keep_ratio) for z in utterances]
    tokens = sum(int(mask.sum()) for mask in exact_masks)
    statistics = [priced.statistics(z) for z in utterances]
    found = calibrate(priced, statistics, tokens)
    assert tokens - 1 <= found.tokens <= tokens
    priced_masks = [priced.keep(values, found.tau) for values in statistics]
    error = sum(sse(z, mask) for z, mask in zip(utterances, priced_masks, strict=True))
    error_exact = sum(sse(z, mask) for z, mask in zip(utterances, exact_masks, strict=True))
    assert error < error_exact


def test_optimal_segmentation_has_the_least_nmse_of_all_selectors() -> None:
    z = speechlike(3, 600)
    exact = ExactDP(s_max=4)
    least = nmse(z, exact.keep(exact.statistics(z), 2.0))
    for selector in (PLE(s_max=4), Greedy(s_max=4), Stride()):
        statistics = selector.statistics(z)
        found = calibrate(selector, [statistics], 300)
        assert abs(found.tokens - 300) <= 2
        assert least < nmse(z, selector.keep(statistics, found.tau))
