"""Audio on the page: what is refused or warned of, and resampling, with soxr beside it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from node_support import Node, ScriptError, floats, text

from dtm_codec.speech.audio import Samples, audio_bytes, resample

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


@pytest.mark.parametrize(
    ("value", "shown"), [(1e30, "1.00e+30"), (-101, "-101"), (np.nan, "NaN"), (np.inf, "Infinity")]
)
def test_samples_that_no_recording_has_are_refused(node: Node, value: float, shown: str) -> None:
    samples = np.array([0, 4, -100, value], np.float32)
    assert node.call("level", text(samples[:3])) == 3
    with pytest.raises(
        ScriptError, match=f"The file holds {re.escape(shown)} at sample 3; allowed: -100 ... 100"
    ) as caught:
        node.call("level", text(samples))
    assert caught.value.kind == "AudioError"


def test_a_wav_file_that_breaks_off_is_named(node: Node) -> None:
    whole = audio_bytes(np.zeros(32_000), 16_000)
    assert node.call("breaksOff", text(whole)) is None
    said = "The file breaks off: 0.50 s of 2.00 s are there."
    assert node.call("breaksOff", text(whole[: 44 + 16_000])) == said
    more = whole[:36] + b"LIST\x03\0\0\0abc\0" + whole[36:]  # chunks have an even length
    assert node.call("breaksOff", text(more[: 56 + 16_000])) == said
    for unknown in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"):
        assert node.call("breaksOff", text(whole[:40] + unknown + whole[44:])) is None
    for other in (
        b"",
        b"RIFF",
        whole[:20],
        whole[:30],
        audio_bytes(np.zeros(100), 16_000, ".flac"),
        b"DTM" + bytes(50),
    ):
        assert node.call("breaksOff", text(other)) is None
