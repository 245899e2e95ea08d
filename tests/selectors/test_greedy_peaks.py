"""Greedy merging and density peaks against the quadratic loops of the papers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.selectors import Greedy, Peaks

caps = st.one_of(st.none(), st.integers(1, 6))


@st.composite
def features(draw: st.DrawFn) -> torch.Tensor:
    count, dim = draw(st.integers(1, 40)), draw(st.integers(2, 5))
    torch.manual_seed(draw(st.integers(0, 100_000)))
    if draw(st.booleans()):  # few directions: many exact ties
        return torch.eye(dim)[torch.randint(dim, (count,))]
    return torch.randn(count, dim).cumsum(0)


def greedy_loop(z: torch.Tensor, tokens: int, s_max: int | None) -> list[bool]:
    """The paper: find the pair of neighbours with maximum similarity, remove its second, until K tokens remain."""
    rows = [[float(v) for v in row] for row in z]
    kept = list(range(len(rows)))
    while len(kept) > tokens:
        best, place = -math.inf, None
        for i in range(len(kept) - 1):
            end = kept[i + 2] if i + 2 < len(kept) else len(rows)
            similarity = 0.0
            for a, b in zip(rows[kept[i]], rows[kept[i + 1]], strict=True):
                similarity += a * b
            if similarity > best and (s_max is None or end - kept[i] <= s_max):
                best, place = similarity, i + 1
        if place is None:
            break
        del kept[place]
    return [t in kept for t in range(len(rows))]


@settings(max_examples=200, deadline=None)
@given(z=features(), tau=st.floats(0.5, 20), s_max=caps)
def test_greedy_heap_makes_the_choices_of_the_loop(z: torch.Tensor, tau: float, s_max: int | None) -> None:
    selector = Greedy(s_max=s_max)
    unit = selector.statistics(z)
    tokens = min(max(1, math.floor(len(z) / tau + 0.5)), len(z))
    assert selector.keep(unit, tau).tolist() == greedy_loop(unit, tokens, s_max)


@settings(max_examples=50, deadline=None)
@given(z=features(), tau=st.floats(0.5, 20))
def test_greedy_without_a_cap_keeps_exactly_its_share(z: torch.Tensor, tau: float) -> None:
    kept = int(Greedy().keep(Greedy().statistics(z), tau).sum())
    assert kept == min(max(1, math.floor(len(z) / tau + 0.5)), len(z))


def peaks_loop(z: torch.Tensor, threshold: float, s_max: int | None) -> list[bool]:
    """VARSTok's Algorithm 1 with k = 10 and beta = 0.2."""
    count = len(z)
    sim = ((z @ z.T + 1) / 2).tolist()
    neighbours = min(10, count - 1)
    rho = []
    for t in range(count):
        others = sorted((sim[t][u] for u in range(count) if u != t), reverse=True)[:neighbours]
        rho.append(math.exp(math.fsum(others) / len(others)) if others else 1.0)
    score = []
    for t in range(count):
        denser = [1 - sim[t][u] for u in range(count) if rho[u] > rho[t]]
        score.append(rho[t] * (min(denser) if denser else max(1 - sim[t][u] for u in range(count))))
    free, starts = set(range(count)), set()
    while free:
        seed = max(free, key=lambda t: (score[t], -t))
        cluster = [seed]
        free.remove(seed)
        for direction in (1, -1):
            t = seed + direction
            while t in free and len(cluster) < (s_max or count) and sim[seed][t] - 0.2 * score[t] > threshold:
                cluster.append(t)
                free.remove(t)
                t += direction
        starts.add(min(cluster))
    return [t in starts for t in range(count)]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    count=st.integers(1, 40),
    dim=st.integers(2, 5),
    tau=st.floats(0.05, 1.2),
    s_max=caps,
)
def test_peaks_is_varstoks_algorithm(seed: int, count: int, dim: int, tau: float, s_max: int | None) -> None:
    torch.manual_seed(seed)
    selector = Peaks(s_max=s_max)
    unit = selector.statistics(torch.randn(count, dim).cumsum(0))
    assert selector.keep(unit, tau).tolist() == peaks_loop(unit, 1 - tau, s_max)


@pytest.mark.parametrize("s_max", [None, 4])
def test_peaks_joins_constant_frames_as_far_as_the_cap_allows(s_max: int | None) -> None:
    selector = Peaks(s_max=s_max)
    kept = int(selector.keep(selector.statistics(torch.ones(12, 3)), 0.3).sum())
    assert kept == (1 if s_max is None else 3)
