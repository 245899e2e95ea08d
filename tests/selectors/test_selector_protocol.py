"""What holds for every selector, whatever it decides by."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.config import SelectorConfig, SelectorName
from dtm_codec.errors import ConfigError, RateError
from dtm_codec.selectors import SELECTORS, Random, Selector, build, nmse

NAMES = list(SELECTORS)
TAUS = (0.05, 0.5, 1.0, 2.5, 7.0)


def every_selector() -> list[Selector]:
    """Each by name, with a span cap and, where it may, without; PLE in all its forms."""
    configs = [SelectorConfig(name=name, s_max=4) for name in NAMES]
    configs += [SelectorConfig(name=name) for name in NAMES if name not in ("dp", "lagrangian")]
    configs += [SelectorConfig(distance="l2"), SelectorConfig(first_crossing=True)]
    return [build(config) for config in configs]


def label(selector: Selector) -> str:
    return f"{selector.name}-{selector.s_max}"


selectors = pytest.mark.parametrize("selector", every_selector(), ids=label)


@st.composite
def features(draw: st.DrawFn, most: int = 40) -> torch.Tensor:
    """Frames of a walk with runs of equal frames and zero vectors in it. -> (N, D)"""
    count, dim = draw(st.integers(1, most)), draw(st.integers(1, 6))
    torch.manual_seed(draw(st.integers(0, 10_000)))
    steps = torch.randn(count, dim) * torch.rand(count, 1).pow(draw(st.integers(0, 4)))
    steps[torch.rand(count) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = 0
    walk = steps.cumsum(0)
    walk[torch.rand(count) < draw(st.sampled_from([0.0, 0.2]))] = 0
    return walk


@selectors
@settings(max_examples=15, deadline=None)
@given(x=features(), tau=st.sampled_from(TAUS))
def test_mask_is_boolean_keeps_the_first_frame_and_caps_spans(selector: Selector, x: torch.Tensor, tau: float) -> None:
    mask = selector.keep(selector.statistics(x), tau)
    assert mask.shape == x.shape[:1]
    assert mask.dtype == np.bool_
    assert mask[0]
    if selector.s_max is not None:
        positions = [*np.flatnonzero(mask).tolist(), len(x)]
        assert max(b - a for a, b in itertools.pairwise(positions)) <= selector.s_max


@selectors
@settings(max_examples=15, deadline=None)
@given(x=features(), tau=st.sampled_from(TAUS), cut=st.integers(1, 39))
def test_statistics_of_pieces_join_to_those_of_the_whole(
    selector: Selector, x: torch.Tensor, tau: float, cut: int
) -> None:
    cut = min(cut, len(x))
    before = min(cut, selector.context)
    pieces = [selector.statistics(x[:cut])]
    if cut < len(x):
        pieces.append(selector.statistics(x[cut - before :])[before:])
    whole = selector.statistics(x)
    assert np.array_equal(np.concatenate(pieces), whole)
    assert not np.isnan(whole).any()


@selectors
@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4), equal=st.booleans(), tau=st.sampled_from(TAUS))
def test_a_batch_is_decided_as_its_utterances_are(
    selector: Selector, lengths: list[int], equal: bool, tau: float
) -> None:
    lengths = [lengths[0]] * len(lengths) if equal else lengths
    torch.manual_seed(sum(lengths))
    x = torch.randn(sum(lengths), 5)
    single = [selector.keep(selector.statistics(piece), tau) for piece in torch.split(x, lengths)]
    assert np.array_equal(selector.select(x, lengths, tau), np.concatenate(single))


@selectors
def test_pieces_and_batches_agree_to_the_bit_at_full_width(selector: Selector) -> None:
    torch.manual_seed(0)
    x = torch.randn(1201, 512).cumsum(0)  # more than is analysed at a time
    whole = selector.statistics(x)
    before = selector.context
    joined = [selector.statistics(x[max(0, s - before) : s + 300])[min(s, before) :] for s in range(0, 1201, 300)]
    assert np.array_equal(np.concatenate(joined), whole)
    batch = x[:1200].reshape(3, 400, 512)
    assert np.array_equal(selector.statistics(batch)[1], selector.statistics(batch[1]))


@selectors
@pytest.mark.parametrize("frames", [1, 2, 3])
def test_the_shortest_and_the_dullest_input_is_decided(selector: Selector, frames: int) -> None:
    for x in (torch.zeros(frames, 4), torch.ones(frames, 4), torch.eye(4)[:frames]):
        for tau in (1e-6, 1.0, 1e6):
            assert selector.keep(selector.statistics(x), tau)[0]


@selectors
def test_a_larger_tau_keeps_fewer(selector: Selector) -> None:
    torch.manual_seed(1)
    statistics = selector.statistics(torch.randn(400, 8).cumsum(0))
    counts = [int(selector.keep(statistics, tau).sum()) for tau in (1e-4, 1e-2, 0.3, 1.0, 3.0, 30.0, 1e4)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 3 * counts[-1]


@selectors
@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_tau_is_refused(selector: Selector, tau: float) -> None:
    with pytest.raises(RateError, match=r"tau = .*allowed: > 0"):
        selector.keep(selector.statistics(torch.ones(3, 2)), tau)


@pytest.mark.parametrize("name", ["dp", "lagrangian"])
@pytest.mark.parametrize("s_max", [None, 0, 256])
def test_segmenting_selectors_need_a_span_cap(name: SelectorName, s_max: int | None) -> None:
    with pytest.raises(ConfigError, match=rf"selector\.s_max = {s_max}; allowed: 1 \.\.\. 255 with '{name}'"):
        SelectorConfig(name=name, s_max=s_max)
    assert build(SelectorConfig(name=name, s_max=255)).s_max == 255


@pytest.mark.parametrize("name", ["dp", "peaks"])
def test_long_input_is_decided_in_blocks(name: str) -> None:
    selector = build(SelectorConfig(name=name, s_max=4))
    assert selector.block is not None
    torch.manual_seed(2)
    x = torch.randn(2 * selector.block, 2)
    mask = selector.keep(selector.statistics(x), 2.0 if name == "dp" else 0.1)
    for half in (slice(0, selector.block), slice(selector.block, None)):
        alone = selector.keep(selector.statistics(x[half]), 2.0 if name == "dp" else 0.1)
        assert np.array_equal(mask[half], alone)


def test_random_masks_repeat_at_inference_and_are_fresh_but_seeded_in_training() -> None:
    selector, x = Random(), torch.zeros(2000, 3)
    assert np.array_equal(selector.select(x, [1000, 1000], 2.0)[:1000], selector.keep(x[:1000, :0], 2.0))
    torch.manual_seed(7)
    first, second = (selector.select(x, [1000, 1000], 2.0, training=True) for _ in range(2))
    assert not np.array_equal(first, second)
    torch.manual_seed(7)
    assert np.array_equal(selector.select(x, [1000, 1000], 2.0, training=True), first)
    assert first[0]
    assert first[1000]


def test_random_masks_of_training_are_one_sequence_over_all_processes() -> None:
    selector, x, halves = Random(), torch.zeros(100, 3), []
    torch.manual_seed(5)
    whole = selector.select(x, [25] * 4, 2.0, training=True)
    for selector.passed_over in (0, 50):
        torch.manual_seed(5)
        halves.append(selector.select(x[:50], [25] * 2, 2.0, training=True))
    assert np.array_equal(np.concatenate(halves), whole)


@pytest.mark.parametrize("training", [True, False])
def test_random_masks_keep_one_in_tau(training: bool) -> None:
    mask = Random().select(torch.zeros(40_000, 1), [40_000], 4.0, training)
    assert mask.mean() == pytest.approx(0.25, abs=0.01)
    runs = (mask[1:] & mask[:-1]).mean()  # neighbours are independent
    assert runs == pytest.approx(1 / 16, abs=0.01)


def test_nmse_is_zero_for_a_full_mask_and_the_variance_for_one_segment() -> None:
    x = torch.tensor([[1.0, 0.0], [3.0, 0.0], [5.0, 4.0]])
    assert nmse(x, np.array([True, True, True])) == 0
    # means (3, 4/3): squared errors 4 + 0 + 4 and 2 (4/3)^2 + (8/3)^2, energy 1 + 9 + 41
    assert nmse(x, np.array([True, False, False])) == pytest.approx((8 + 32 / 3) / 51)
    # means (2, 0) and (5, 4)
    assert nmse(x, np.array([True, False, True])) == pytest.approx(2 / 51)
    assert nmse(torch.zeros(3, 2), np.array([True, False, False])) == 0


def test_importing_selectors_does_not_import_numba() -> None:
    code = "import sys, dtm_codec.selectors; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
