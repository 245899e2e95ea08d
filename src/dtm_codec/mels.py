"""Mel filters and the window of frames."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Slaney's scale: linear up to 1 kHz (15 mels), then 27 mels per factor of 6.4
_LINEAR_HERTZ, _LINEAR_MELS, _LOG_STEP = 1000.0, 15.0, math.log(6.4) / 27


def mel_filterbank(sample_rate: int, n_fft: int, n_mels: int) -> npt.NDArray[np.float32]:
    """Slaney's triangular filters, area normalised. -> (n_mels, n_fft / 2 + 1)"""
    edges = _mel_to_hertz(np.linspace(0.0, _hertz_to_mel(sample_rate / 2), n_mels + 2))
    bins = np.linspace(0.0, sample_rate / 2, n_fft // 2 + 1)
    lower, centre, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (bins - lower) / (centre - lower)
    falling = (upper - bins) / (upper - centre)
    triangles = np.maximum(np.minimum(rising, falling), 0)
    return (triangles * 2 / (upper - lower)).astype(np.float32)


def hann(length: int) -> Floats:
    """The window of front end and heads, (n_fft,); its first value is 0."""
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length))


def _hertz_to_mel(hertz: float) -> float:
    if hertz < _LINEAR_HERTZ:
        return hertz * _LINEAR_MELS / _LINEAR_HERTZ
    return _LINEAR_MELS + math.log(hertz / _LINEAR_HERTZ) / _LOG_STEP


def _mel_to_hertz(mels: Floats) -> Floats:
    linear = mels * _LINEAR_HERTZ / _LINEAR_MELS
    return np.where(mels < _LINEAR_MELS, linear, _LINEAR_HERTZ * np.exp(_LOG_STEP * (mels - _LINEAR_MELS)))
