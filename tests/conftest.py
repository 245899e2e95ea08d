"""What the tests of several rooms share."""

from __future__ import annotations

import pytest

from dtm_codec.coding import refinement
from dtm_codec.metrics.base import SAMPLE_RATE, Samples
from dtm_codec.speech.audio import read_audio, sample_path


@pytest.fixture(scope="session")
def speech() -> Samples:
    """2 s."""
    audio, _ = read_audio(sample_path(), SAMPLE_RATE)
    return audio[SAMPLE_RATE : 3 * SAMPLE_RATE]


@pytest.fixture
def free_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """For `effort` with untrained networks: their codes say so little that no move would be worth its cost."""
    monkeypatch.setattr(refinement, "MOVE_COST", 0.0)
