"""What makes stimuli comparable: the same length, the same instant, the same loudness."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import soundfile

from ...errors import AudioError
from ...speech.audio import Samples
from ...system.optional import import_optional

MAX_DELAY_S = 0.25
"""Delays of systems are looked for up to this."""

MIN_SECONDS = 0.5
"""BS.1770 measures loudness in blocks of 0.4 s."""

HEADROOM = 10 ** (-1 / 20)
"""Largest sample of a trial: 1 dB below full scale."""

ENVELOPE_S = 0.002
"""Smoothing of the envelopes that are aligned: long enough to forget phase, short against what an ear can tell."""

FADE_S = 0.005
"""Fade at both ends, so that a loop over the whole stimulus does not click."""


def delay(reference: Samples, audio: Samples, sample_rate: int) -> int:
    """Samples by which `audio` comes late (negative: early).

    Envelopes are compared, not waves: a neural decoder need not keep the phase.
    """
    signal = import_optional("scipy.signal", "web")
    width = max(1, round(ENVELOPE_S * sample_rate))
    window = np.hanning(width + 2)[1:-1]
    envelopes = [signal.fftconvolve(np.abs(x), window, mode="same") for x in (audio, reference)]
    late, early = (envelope - envelope.mean() for envelope in envelopes)
    correlation = signal.correlate(late, early, mode="full", method="fft")
    lags = signal.correlation_lags(late.size, early.size)
    near = np.abs(lags) <= MAX_DELAY_S * sample_rate
    return int(lags[near][np.argmax(correlation[near])])


def aligned(reference: Samples, audio: Samples, sample_rate: int) -> Samples:
    """`audio` moved to where the reference is, and cut or filled with silence to its length."""
    late = delay(reference, audio, sample_rate)
    moved = audio[late:] if late >= 0 else np.concatenate([np.zeros(-late, np.float32), audio])
    out = np.zeros(reference.size, np.float32)
    out[: min(moved.size, out.size)] = moved[: out.size]
    return out


def loudness(audio: Samples, sample_rate: int) -> float:
    """Integrated loudness in LUFS (BS.1770); minus infinity for silence."""
    pyloudnorm = import_optional("pyloudnorm", "web")
    with np.errstate(divide="ignore"):
        return float(pyloudnorm.Meter(sample_rate).integrated_loudness(audio.astype(np.float64)))


def matched(stimuli: Mapping[str, Samples], sample_rate: int, lufs: float) -> dict[str, Samples]:
    """All stimuli of a trial at one loudness: `lufs`, or less if one of them would clip."""
    scaled = {}
    for name, audio in stimuli.items():
        level = loudness(audio, sample_rate)
        if not np.isfinite(level):
            raise AudioError(f"{name}: silent; allowed: audio that can be heard")
        scaled[name] = audio * np.float32(10 ** ((lufs - level) / 20))
    peak = max(float(np.abs(audio).max()) for audio in scaled.values())
    gain = np.float32(min(1.0, HEADROOM / peak))
    return {name: _faded(audio * gain, sample_rate) for name, audio in scaled.items()}


def dithered(wav: bytes, key: bytes) -> bytes:
    """A 16-bit WAV file with noise of at most one step, 90 dB below full scale, drawn from the key.

    The hidden reference would else be the same bytes as the open one, and a script could find it.
    """
    samples, rate = soundfile.read(io.BytesIO(wav), dtype="int16")
    noise = np.random.default_rng(list(key)).integers(-1, 2, samples.shape, np.int16)
    noisy = np.clip(samples.astype(np.int32) + noise, -32768, 32767).astype(np.int16)
    buffer = io.BytesIO()
    soundfile.write(buffer, noisy, rate, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def _faded(audio: Samples, sample_rate: int) -> Samples:
    ramp = np.linspace(0, 1, round(FADE_S * sample_rate), dtype=np.float32)
    out = audio.copy()
    out[: ramp.size] *= ramp
    out[-ramp.size :] *= ramp[::-1]
    return out
