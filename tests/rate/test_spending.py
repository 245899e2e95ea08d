"""A rate as written is met from below, in few trials, whatever the sizes of files do."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.errors import RateError
from dtm_codec.layout import Layout
from dtm_codec.rate.request import RateRequest
from dtm_codec.rate.spending import TOLERANCE, Trial, spend

LAYOUT = Layout(sample_rate=16_000, hop_length=160, token_bits=14, stride=None)


class Files:
    """Files of `seconds` s whose tokens take about `width` bits, give or take some that nobody can foresee."""

    def __init__(self, seconds: float, width: float, noise: int, seed: int = 0) -> None:
        self.num_samples = round(16_000 * seconds)
        self.steps = LAYOUT.steps(self.num_samples)
        self.width, self.noise, self.seed = width, noise, seed
        self.tried: list[int] = []

    def __call__(self, tokens: int) -> Trial[int]:
        assert 1 <= tokens <= self.steps
        assert tokens not in self.tried, "tried twice"
        self.tried.append(tokens)
        share = min(max(tokens / self.steps, 1e-9), 1 - 1e-9)
        mask = -self.steps * (share * math.log2(share) + (1 - share) * math.log2(1 - share))
        content = max(1, round(tokens * self.width) + hash((tokens, self.seed)) % (2 * self.noise + 1) - self.noise)
        return Trial(tokens, tokens, round(mask) + content, content)

    def spend(self, request: RateRequest) -> Trial[int]:
        return spend(request, self.num_samples, LAYOUT, None, 12.0, self)


@settings(max_examples=300, deadline=None)
@given(
    seconds=st.floats(0.05, 600),
    width=st.floats(7, 14),
    noise=st.integers(0, 20),
    bitrate=st.floats(250, 1000),
    seed=st.integers(0, 1000),
)
def test_any_rate_is_met_from_below(seconds: float, width: float, noise: int, bitrate: float, seed: int) -> None:
    files = Files(seconds, width, noise, seed)
    found = files.spend(RateRequest(bitrate=bitrate, written=True, strict=False))
    budget = bitrate * files.num_samples / 16_000
    if found.tokens == 1:
        return  # the first step is always kept
    assert found.bits <= budget
    if found.tokens < 0.9 * files.steps:  # towards all steps, masks get small faster than tokens get many
        # one token more is too many, or what is left is small
        near = budget - max(TOLERANCE * budget, 28)
        assert found.bits >= near - 2 * noise - 14


@given(seconds=st.floats(5, 600), width=st.floats(9, 14), bitrate=st.floats(350, 1000))
def test_where_sizes_are_smooth_three_trials_do(seconds: float, width: float, bitrate: float) -> None:
    files = Files(seconds, width, noise=0)
    found = files.spend(RateRequest(bitrate=bitrate, written=True, strict=False))
    assert found.tokens == files.steps or len(files.tried) <= 4


@pytest.mark.parametrize(("bitrate", "said"), [(5000, "up to 1500 bps"), (5, "22 bps or more")])
def test_what_no_file_can_have_is_refused(bitrate: float, said: str) -> None:
    with pytest.raises(RateError, match=rf"bitrate = {bitrate} bps as written; allowed: {said}"):
        Files(1.0, 14, 0).spend(RateRequest(bitrate=bitrate, written=True))


def test_a_rate_between_the_largest_file_and_its_nominal_size_keeps_all_steps() -> None:
    files = Files(3.0, 10, 0)
    assert files.spend(RateRequest(bitrate=1400, written=True)).tokens == files.steps


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tau": 1.0, "written": True}, "written with tau; allowed: with bitrate or quality"),
        ({"token_rate": 50, "written": True}, "written with token_rate"),
        ({"written": True}, "written with no rate"),
        ({"bitrate": 800, "quality": "low"}, "bitrate and quality were given"),
        ({"quality": "best"}, "quality = 'best'; allowed: low, normal, high"),
        ({"bitrate": 800, "written": 1}, "written = 1; allowed: True, False"),
    ],
)
def test_requests_that_mean_nothing_are_refused(asked: dict, said: str) -> None:
    with pytest.raises(RateError, match=said):
        RateRequest(**asked)
