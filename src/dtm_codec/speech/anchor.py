"""The low-pass anchor of listening tests (ITU-R BS.1534), for those tests and for tables beside codecs."""

from __future__ import annotations

import numpy as np

from ..errors import ConfigError
from ..system.optional import import_optional
from .audio import Samples


def low_pass(audio: Samples, sample_rate: int, cutoff: float = 3500.0) -> Samples:
    """Flat to the cut-off, 60 dB down from 8/7 of it on, no delay (BS.1534: 50 dB at 4.5 kHz for 3.5)."""
    signal = import_optional("scipy.signal")
    stop = cutoff * 8 / 7
    if stop >= sample_rate / 2:
        allowed = f"below {sample_rate / 2 * 7 / 8:g}"
        raise ConfigError(f"cut-off of the anchor = {cutoff:g} Hz at {sample_rate} Hz; allowed: {allowed}")
    taps, beta = signal.kaiserord(60.0, (stop - cutoff) / (sample_rate / 2))
    kernel = signal.firwin(taps | 1, (cutoff + stop) / 2, window=("kaiser", beta), fs=sample_rate)
    filtered = signal.fftconvolve(audio, kernel)[taps // 2 :][: audio.size]
    return np.asarray(filtered, dtype=np.float32)
