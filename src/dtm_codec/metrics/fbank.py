"""Kaldi's log-mel filterbank in numpy: what speaker encoders of the Kaldi and WeSpeaker family hear.

25 ms frames every 10 ms, whole frames only; mean removed, pre-emphasis 0.97, Hamming window, FFT of 512; triangles
on the mel scale 1127 ln(1 + f / 700), in power; natural log. No dither, so that a file always has the same features.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from .base import SAMPLE_RATE, Samples

_FRAME, _HOP, _FFT = 400, 160, 512
_PREEMPHASIS = 0.97
_LOWEST_HZ = 20.0
_PCM_SCALE = 32768.0
"""Kaldi's samples are 16-bit integers."""


def log_mel_filterbank(audio: Samples, bands: int = 80) -> npt.NDArray[np.float32]:
    """Features of one utterance. audio: (T,) at 16 kHz, T >= 400 -> (1 + (T - 400) // 160, bands)"""
    samples = audio.astype(np.float64) * _PCM_SCALE
    frames = np.lib.stride_tricks.sliding_window_view(samples, _FRAME)[::_HOP]
    frames = frames - frames.mean(axis=1, keepdims=True)
    previous = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    windowed = (frames - _PREEMPHASIS * previous) * np.hamming(_FRAME)
    power = np.abs(np.fft.rfft(windowed, _FFT)) ** 2
    energies = power[:, : _FFT // 2] @ _triangles(bands)
    return np.log(np.maximum(energies, np.finfo(np.float32).eps)).astype(np.float32)


@cache
def _triangles(bands: int) -> npt.NDArray[np.float64]:
    """(FFT / 2, bands), equally spaced in mel from 20 Hz to half the sample rate."""

    def mel(hertz: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return 1127.0 * np.log1p(np.asarray(hertz, np.float64) / 700.0)

    edges = np.linspace(mel(_LOWEST_HZ), mel(SAMPLE_RATE / 2), bands + 2)
    bins = mel(np.arange(_FFT // 2) * SAMPLE_RATE / _FFT)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(rising, falling))
