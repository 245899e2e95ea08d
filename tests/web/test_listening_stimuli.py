import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from dtm_codec.errors import AudioError
from dtm_codec.speech.anchor import low_pass
from dtm_codec.web.listening.stimuli import aligned, delay, loudness, matched

RATE = 16_000


@settings(max_examples=20, deadline=None)
@given(late=st.integers(-3000, 3000))
def test_a_delay_is_found_and_taken_back(late: int):
    rng = np.random.default_rng(1)
    bursts = np.repeat(rng.random(100) ** 3, 320)
    reference = (bursts * rng.standard_normal(32_000)).astype(np.float32)
    moved = np.concatenate([np.zeros(max(0, late), np.float32), reference[max(0, -late) :]])
    assert delay(reference, moved, RATE) == late
    back = aligned(reference, moved, RATE)
    assert back.shape == reference.shape
    inside = slice(3000, -3000)
    assert np.array_equal(back[inside], reference[inside])


def test_a_decoder_that_scrambles_the_phase_is_aligned_to_a_millisecond(speech):
    spectrum = signal.stft(speech, RATE, nperseg=512)[2]
    phases = np.exp(2j * np.pi * np.random.default_rng(0).random(spectrum.shape))
    vocoded = signal.istft(np.abs(spectrum) * phases, RATE, nperseg=512)[1].astype(np.float32)
    late = np.concatenate([np.zeros(480, np.float32), vocoded])
    assert delay(speech, vocoded, RATE) == pytest.approx(0, abs=RATE // 500)
    assert delay(speech, late, RATE) == pytest.approx(480, abs=RATE // 500)


def test_loudness_is_that_of_bs1770():
    tone = np.sin(2 * np.pi * 997 * np.arange(5 * 48_000) / 48_000).astype(np.float32)
    assert loudness(tone, 48_000) == pytest.approx(-3.01, abs=0.1)


def test_all_stimuli_of_a_trial_are_equally_loud(speech):
    trial = {"a": speech, "b": 0.1 * speech, "c": low_pass(speech, RATE, 3500)}
    levels = [loudness(audio, RATE) for audio in matched(trial, RATE, -23).values()]
    assert levels == pytest.approx([-23] * 3, abs=0.1)


def test_peaks_lower_the_whole_trial_and_nothing_clips(speech):
    spiky = speech.copy()
    spiky[8000] = 30 * np.abs(speech).max()
    out = matched({"plain": speech, "spiky": spiky}, RATE, -14)
    assert max(np.abs(audio).max() for audio in out.values()) < 0.9
    assert loudness(out["plain"], RATE) == pytest.approx(loudness(out["spiky"], RATE), abs=0.3)
    assert loudness(out["plain"], RATE) < -16


def test_silence_is_refused_by_name(speech):
    with pytest.raises(AudioError, match="broken: silent"):
        matched({"fine": speech, "broken": np.zeros_like(speech)}, RATE, -23)
