"""Which precision `auto` chooses."""

from __future__ import annotations

import pytest
import torch

from dtm_codec.training import precision


def test_the_gain_is_measured_in_another_process() -> None:
    assert precision.measured_gain() >= 0


@pytest.mark.parametrize(("gain", "chosen"), [(0.0, "32-true"), (1.1, "32-true"), (2.1, "bf16-mixed")])
def test_auto_takes_16_bits_where_they_are_faster(gain: float, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "measured_gain", lambda: gain)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert precision.resolve("auto", "cpu") == chosen
    assert precision.resolve("32-true", "cpu") == "32-true"


def test_a_processor_without_16_bit_products_ends_only_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_measure", _dies)
    assert precision.measured_gain() == 0


def _dies(*_: object) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGILL)
