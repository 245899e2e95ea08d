"""Resampling on the page: lengths, what passes, what is kept out, and soxr beside it."""

from __future__ import annotations

import numpy as np
import pytest
from node_support import Node, floats, text

from dtm_codec.speech.audio import Samples, resample

RATES = (8_000, 22_050, 24_000, 44_100, 48_000, 96_000)


def resampled(node: Node, samples: np.ndarray, source: int, target: int = 16_000) -> np.ndarray:
    return floats(node.call("resample", text(samples.astype(np.float32)), source, target))


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("length", [1, 2, 1001])
def test_lengths_are_those_of_the_package(node: Node, rate: int, length: int) -> None:
    silence = np.zeros(length, np.float32)
    assert resampled(node, silence, rate).size == resample(silence, rate, 16_000).size


def test_the_same_rate_changes_nothing(node: Node, speech: Samples) -> None:
    np.testing.assert_array_equal(resampled(node, speech, 16_000), speech)


@pytest.mark.parametrize("rate", RATES)
def test_tones_pass_in_time_and_unchanged(node: Node, rate: int) -> None:
    for hertz in (50, 1000, 0.42 * min(rate, 16_000)):
        expected = tone(hertz, 16_000)
        found = resampled(node, tone(hertz, rate), rate)[: expected.size]
        np.testing.assert_allclose(found[400:-400], expected[400 : found.size - 400], atol=1e-3)


@pytest.mark.parametrize("rate", [22_050, 44_100, 48_000])
def test_what_the_new_rate_cannot_hold_is_silent(node: Node, rate: int) -> None:
    for hertz in (8_400, 9_000, 10_900):
        assert np.abs(resampled(node, tone(hertz, rate), rate)[400:-400]).max() < 1e-3


def test_speech_is_that_of_soxr(node: Node, speech: Samples) -> None:
    """Up to 48 kHz by soxr, and down again by both: what differs is 50 dB below the speech."""
    high = resample(speech, 16_000, 48_000)
    difference = resampled(node, high, 48_000) - resample(high, 48_000, 16_000)
    assert 20 * np.log10(np.std(difference) / np.std(speech)) < -50
