"""What the demo draws: a spectrogram in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WINDOW_S = 0.025
HOP_S = 0.005
MAX_COLUMNS = 3000
"""Longer audio gets a larger hop; no screen has more columns."""

RANGE_DB = 75.0
"""Below the loudest cell everything is black from here on."""


@dataclass(frozen=True)
class Spectrogram:
    """Power in decibels, 0 ... 255 over `RANGE_DB` up to `peak_db`; bin 0 is 0 Hz, the last half the sample rate."""

    cells: npt.NDArray[np.uint8]
    """(columns, bins)"""
    peak_db: float


def spectrogram(audio: npt.NDArray[np.float32], sample_rate: int, peak_db: float | None = None) -> Spectrogram:
    """(T,) -> columns equally spaced over the whole signal. `peak_db` puts two pictures on one scale."""
    window = round(WINDOW_S * sample_rate)
    fft = 1 << (window - 1).bit_length()
    columns = int(np.clip(round(audio.size / (HOP_S * sample_rate)), 1, MAX_COLUMNS))
    centres = ((np.arange(columns) + 0.5) * audio.size / columns).astype(np.int64)
    padded = np.pad(audio, (window // 2, window))
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[centres] * np.hanning(window).astype(np.float32)
    power = np.abs(np.fft.rfft(frames, fft)) ** 2
    decibels = 10 * np.log10(power + 1e-10)
    top = float(decibels.max()) if peak_db is None else peak_db
    return Spectrogram(np.clip(255 * (1 + (decibels - top) / RANGE_DB), 0, 255).astype(np.uint8), top)
