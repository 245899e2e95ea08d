"""Calibration meets the rate asked for, says what it really gives, and refuses what cannot be."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.errors import RateError
from dtm_codec.layout import Layout
from dtm_codec.rate.calibration import calibrate, tokens_for_bitrate, tokens_for_token_rate
from dtm_codec.selectors import PLE, ExactDP, Greedy, Lagrangian, Random, Selector, Stride, Threshold

VARIABLE = Layout(sample_rate=16_000, hop_length=160, token_bits=14, stride=None)
FIXED = Layout(sample_rate=16_000, hop_length=160, token_bits=16, stride=2)


def walk(seed: int, frames: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = torch.rand(frames, 1, generator=generator).pow(2)
    return (size * torch.randn(frames, 8, generator=generator)).cumsum(0)


def kept(selector: Selector, statistics: list[torch.Tensor], tau: float) -> int:
    return sum(int(selector.keep(utterance, tau).sum()) for utterance in statistics)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), frames=st.integers(1, 400), share=st.floats(0, 1))
def test_ple_meets_any_number_of_tokens_on_one_utterance(seed: int, frames: int, share: float) -> None:
    target = max(1, round(share * frames))
    statistics = [PLE().statistics(walk(seed, frames))]
    found = calibrate(PLE(), statistics, target)
    assert abs(found.tokens - target) <= 1
    assert found.tokens == kept(PLE(), statistics, found.tau)


@pytest.mark.parametrize(
    "selector",
    [PLE(), PLE(s_max=4), PLE(first_crossing=True), Threshold(), Random(), Greedy(), ExactDP(s_max=4), Lagrangian(4)],
    ids=lambda s: f"{s.name}-{s.s_max}",
)
def test_every_selector_is_calibrated_on_a_set(selector: Selector) -> None:
    utterances = [walk(seed, 100 + 57 * seed) for seed in range(5)]
    statistics = [selector.statistics(z) for z in utterances]
    target = sum(map(len, utterances)) // 2
    found = calibrate(selector, statistics, target)
    assert abs(found.tokens - target) <= 4
    assert found.tokens == kept(selector, statistics, found.tau)


def test_the_nearest_reachable_count_is_returned() -> None:
    statistics = [torch.zeros(100, 0)]
    assert calibrate(Stride(), statistics, 40).tokens == 34  # spans of 3 keep 34, of 2 keep 50
    assert calibrate(Stride(), statistics, 48).tokens == 50
    assert calibrate(Threshold(), [torch.zeros(50, 1)], 20).tokens == 1  # constant frames never open a group
    assert calibrate(PLE(), [torch.ones(50, 1)], 1000).tokens == 50


def test_calibrating_on_nothing_is_refused() -> None:
    with pytest.raises(RateError, match="0 utterances"):
        calibrate(PLE(), [], 5)


@given(samples=st.lists(st.integers(8_000, 200_000), min_size=1, max_size=4), bitrate=st.floats(200, 1400))
def test_a_bitrate_includes_the_position_bits(samples: list[int], bitrate: float) -> None:
    tokens = tokens_for_bitrate(bitrate, samples, VARIABLE)
    bits = 14 * tokens + sum(VARIABLE.steps(n) for n in samples)
    assert abs(bits - bitrate * sum(samples) / 16_000) <= 7 + 1e-6


def test_the_papers_anchor() -> None:
    assert tokens_for_bitrate(800, 160_000, VARIABLE) == 500
    assert tokens_for_bitrate(800, 160_000, FIXED) == 500
    assert tokens_for_token_rate(50, [160_000, 160_000], VARIABLE) == 1000


@pytest.mark.parametrize(
    ("bitrate", "layout", "s_max"),
    [
        (50, VARIABLE, None),
        (1600, VARIABLE, None),
        (700, FIXED, None),
        (400, VARIABLE, 4),
        (float("nan"), VARIABLE, None),
    ],
)
def test_an_unreachable_bitrate_is_refused(bitrate: float, layout: Layout, s_max: int | None) -> None:
    with pytest.raises(RateError, match=r"bitrate = .* bps; allowed: \d+ ... \d+ bps"):
        tokens_for_bitrate(bitrate, 160_000, layout, s_max)


def test_the_refusal_names_what_can_be_reached() -> None:
    with pytest.raises(RateError, match=r"bitrate = 90 bps; allowed: 101 ... 1500 bps"):
        tokens_for_bitrate(90, 160_000, VARIABLE)  # 1000 steps and 1 token; or 1000 tokens
    with pytest.raises(RateError, match=r"token rate = 101 Hz; allowed: 25.00 ... 100.00 Hz"):
        tokens_for_token_rate(101, 160_000, VARIABLE, s_max=4)


@pytest.mark.parametrize("samples", [1, 159, 161, 480])
@pytest.mark.parametrize("layout", [VARIABLE, FIXED])
def test_the_shortest_audio_takes_the_nearest_it_can(samples: int, layout: Layout) -> None:
    """Whole tokens and a partly filled step weigh much there; a usual bitrate is no error."""
    assert 1 <= tokens_for_bitrate(800, samples, layout) <= layout.steps(samples)
