"""The linear-time selectors against the loops that the papers print."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dtm_codec.selectors import PLE, Stride, Threshold
from dtm_codec.selectors.base import Array

steps = st.lists(
    st.one_of(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 2.0]), st.floats(0, 2, width=32)), min_size=1, max_size=60
)
taus = st.one_of(st.sampled_from([0.05, 0.1, 0.25, 0.3, 1.0, 3.0]), st.floats(1e-6, 100))


def algorithm_1(distances: list[float], tau: float) -> list[bool]:
    """Algorithm 1 of the paper, line by line; distances[0] is not looked at."""
    mask = [True]
    s, k = 0.0, 1
    for d in distances[1:]:
        s += d
        crossed = s >= k * tau
        k += crossed
        mask.append(crossed)
    return mask


def first_crossing(distances: list[float], tau: float) -> list[bool]:
    """As Algorithm 1, but k jumps over all multiples that one step passes."""
    mask = [True]
    s, k = 0.0, 1
    for d in distances[1:]:
        s += d
        crossed = s >= k * tau
        mask.append(crossed)
        if crossed:
            k = math.floor(s / tau) + 1
    return mask


def statistics(distances: list[float]) -> Array:
    return np.array([[0.0], *([d] for d in distances[1:])], np.float32)


def in_float32(distances: list[float]) -> list[float]:
    return statistics(distances)[:, 0].tolist()


@settings(max_examples=200, deadline=None)
@given(distances=steps, tau=taus)
def test_ple_is_algorithm_1_even_where_a_multiple_is_met_exactly(distances: list[float], tau: float) -> None:
    assert PLE().keep(statistics(distances), tau).tolist() == algorithm_1(in_float32(distances), tau)


@settings(max_examples=200, deadline=None)
@given(
    step=st.floats(0.125, 2, width=32),
    frames=st.integers(2, 30),
    k=st.integers(1, 30),
    aside=st.sampled_from([-1, 0, 1]),
)
@example(step=1.271875023841858, frames=7, k=5, aside=1)  # the division rounds up to 5, and 5 tau > the path
def test_ple_is_algorithm_1_where_the_path_ends_a_rounding_error_from_a_multiple(
    step: float, frames: int, k: int, aside: int
) -> None:
    path = 0.0
    for _ in range(frames - 1):
        path += step
    tau = math.nextafter(path / k, aside * math.inf) if aside else path / k
    distances = [step] * frames
    assert PLE().keep(statistics(distances), tau).tolist() == algorithm_1(distances, tau)


@settings(max_examples=150, deadline=None)
@given(distances=steps, tau=st.sampled_from([0.0625, 0.25, 0.5, 1.0, 4.0]))
def test_first_crossing_keeps_one_frame_per_jump(distances: list[float], tau: float) -> None:
    mask = PLE(first_crossing=True).keep(statistics(distances), tau)
    assert mask.tolist() == first_crossing(in_float32(distances), tau)


def test_a_jump_over_several_multiples_tells_the_two_forms_apart() -> None:
    jump = statistics([0.0, 3.5, 0.0, 0.0, 0.0])
    assert PLE().keep(jump, 1.0).tolist() == [True, True, True, True, False]
    assert PLE(first_crossing=True).keep(jump, 1.0).tolist() == [True, True, False, False, False]


@settings(max_examples=150, deadline=None)
@given(distances=steps, tau=taus)
def test_ple_keeps_one_frame_per_tau_of_path(distances: list[float], tau: float) -> None:
    """K = 1 + floor(S_N / tau) while no step is longer than tau, so that every multiple has a frame of its own."""
    tau = max([tau, *in_float32(distances)])
    path = math.fsum(in_float32(distances))
    kept = int(PLE().keep(statistics(distances), tau).sum())
    assert kept in (1 + math.floor(path / tau * (1 - 1e-12)), 1 + math.floor(path / tau * (1 + 1e-12)))


@settings(max_examples=200, deadline=None)
@given(distances=steps, first=taus, second=taus)
def test_ple_count_never_grows_with_tau(distances: list[float], first: float, second: float) -> None:
    kept = [int(PLE().keep(statistics(distances), tau).sum()) for tau in sorted((first, second))]
    assert kept[0] >= kept[1]


@pytest.mark.parametrize("frames", [1, 7, 50])
def test_ple_statistics_are_the_cosine_distances_of_algorithm_1(frames: int) -> None:
    torch.manual_seed(frames)
    z = torch.randn(frames, 16, dtype=torch.float64)
    expected = [0.0]
    for t in range(1, frames):
        expected.append(float(1 - z[t] @ z[t - 1] / (z[t].norm() * z[t - 1].norm())))
    np.testing.assert_allclose(PLE().statistics(z)[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_ple_may_measure_the_path_in_l2() -> None:
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [3.0, 5.0]])
    assert PLE(distance="l2").statistics(z)[:, 0].tolist() == [0, 5, 0, 1]


def test_nearly_equal_frames_have_an_accurate_distance() -> None:
    angle = 1e-4
    z = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])
    assert PLE().statistics(z)[1, 0] == pytest.approx(angle**2 / 2, rel=1e-3)


def test_digital_silence_has_no_path() -> None:
    assert np.abs(PLE().statistics(np.zeros((5, 3)))).max() == 0


@settings(max_examples=200, deadline=None)
@given(distances=steps, tau=taus, s_max=st.integers(1, 6))
def test_ple_spans_over_the_cap_are_cut_from_their_start(distances: list[float], tau: float, s_max: int) -> None:
    expected, start = [], 0
    for t, crossed in enumerate(algorithm_1(in_float32(distances), tau)):
        start = t if crossed else start
        expected.append((t - start) % s_max == 0)
    assert PLE(s_max=s_max).keep(statistics(distances), tau).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(
    similarities=st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.75, 0.875, 1.0]), min_size=1, max_size=50),
    threshold=st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9375]),
    s_max=st.one_of(st.none(), st.integers(1, 8)),
)
def test_threshold_opens_a_group_at_every_dissimilar_frame(
    similarities: list[float], threshold: float, s_max: int | None
) -> None:
    """FlexiCodec: a new group where sim <= threshold, groups over the cap cut every s_max frames."""
    expected, size = [], 0
    for t, similarity in enumerate(similarities):
        opens = t == 0 or similarity <= threshold or size == s_max
        size = 1 if opens else size + 1
        expected.append(opens)
    distances = np.array([[1 - similarity] for similarity in similarities])
    assert Threshold(s_max=s_max).keep(distances, 1 - threshold).tolist() == expected


def test_threshold_compares_neighbours() -> None:
    z = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(Threshold().statistics(z)[:, 0], [0, 0, 1, 1 - math.sqrt(0.5)], atol=1e-6)


@given(frames=st.integers(1, 50), tau=st.floats(0.1, 60))
def test_stride_keeps_every_nth(frames: int, tau: float) -> None:
    span = max(1, math.floor(tau))
    expected = [t % span == 0 for t in range(frames)]
    assert Stride().keep(np.zeros((frames, 0)), tau).tolist() == expected
