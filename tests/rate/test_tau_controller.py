"""The controller finds its keep ratio from anywhere, and goes on where it stopped."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from dtm_codec.errors import RateError
from dtm_codec.rate.controller import TAU_MAX, TAU_MIN, TauController
from dtm_codec.selectors import PLE, Lagrangian, Selector, Threshold


def batch(step: int, frames: int = 1500) -> torch.Tensor:
    """Features with steps of very different length, another utterance each step. -> (N, D)"""
    generator = torch.Generator().manual_seed(step)
    size = torch.rand(frames, 1, generator=generator).pow(3) + 0.01
    return (size * torch.randn(frames, 4, generator=generator)).cumsum(0)


def train(selector: Selector, controller: TauController, steps: range) -> float:
    """Run training steps; returns the keep ratio over the last 50."""
    kept, frames = [], []
    for step in steps:
        mask = selector.keep(selector.statistics(batch(step)), controller.tau)
        controller.update(int(mask.sum()), mask.size)
        kept.append(int(mask.sum()))
        frames.append(mask.size)
    return sum(kept[-50:]) / sum(frames[-50:])


@pytest.mark.parametrize("selector", [PLE(distance="l2"), Threshold(), Lagrangian(s_max=4)], ids=lambda s: s.name)
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_controller_converges_from_a_tau_off_by_a_hundred(selector: Selector, factor: float) -> None:
    right = TauController(0.5, 0.3)
    train(selector, right, range(400))
    wrong = TauController(0.5, right.tau * factor)
    assert train(selector, wrong, range(600)) == pytest.approx(0.5, abs=0.01)


def test_too_many_kept_raises_tau_and_too_few_lowers_it_from_the_first_step() -> None:
    assert TauController(0.5, 1.0).update(51, 100) > 1
    assert TauController(0.5, 1.0).update(49, 100) < 1
    assert TauController(0.5, 1.0).update(50, 100) == 1


def test_tau_stays_within_its_clip() -> None:
    high, low = TauController(0.5, TAU_MAX), TauController(0.5, TAU_MIN)
    assert high.update(10, 10) == TAU_MAX
    assert low.update(1, 1000) == TAU_MIN


def test_tau_changes_every_so_many_steps_with_all_of_them_in_the_average() -> None:
    controller = TauController(0.5, 1.0, every=3)
    taus = [controller.update(kept, 10) for kept in (9, 9, 1)]
    assert taus[:2] == [1, 1]
    assert taus[2] > 1


def test_steps_shrink_with_time() -> None:
    controller = TauController(0.5, 1.0, momentum=0.0, decay_steps=10)
    taus = [1.0] + [controller.update(100, 100) for _ in range(30)]
    growth = [b / a for a, b in itertools.pairwise(taus)]
    assert growth == sorted(growth, reverse=True)
    assert growth[29] - 1 == pytest.approx(0.1 * 0.5 / 2, rel=0.03)  # eta0 / sqrt(1 + 30 / 10)


def test_a_resumed_controller_repeats_the_run() -> None:
    counts = [(40 + step * 7 % 30, 100) for step in range(40)]
    whole = TauController(0.5, 1.0, every=2)
    first = TauController(0.5, 1.0, every=2)
    expected = [whole.update(*step) for step in counts]
    for step in counts[:17]:
        first.update(*step)
    second = TauController(0.5, 9.0, every=2)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [second.update(*step) for step in counts[17:]] == expected[17:]


@pytest.mark.parametrize(
    ("target", "tau", "every"), [(0.0, 1.0, 1), (1.5, 1.0, 1), (0.5, 0.0, 1), (0.5, float("nan"), 1), (0.5, 1.0, 0)]
)
def test_impossible_settings_are_refused(target: float, tau: float, every: int) -> None:
    with pytest.raises(RateError, match="allowed"):
        TauController(target, tau, every=every)


@pytest.mark.parametrize(("kept", "frames"), [(1, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(kept: int, frames: int) -> None:
    with pytest.raises(RateError, match="allowed"):
        TauController(0.5, 1.0).update(kept, frames)
