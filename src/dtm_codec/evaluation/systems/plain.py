"""What stands beside codecs: the reference itself, and the low-pass anchor of listening tests."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...layout import Bits
from ...metrics.base import SAMPLE_RATE
from ...optional import require
from ...specs import Spec
from .base import Coded, Samples, System

PCM_BITS = 16


class Identity(System):
    """The reference as it is: what each metric gives at best, and the WER of the recogniser itself."""

    title = series = "Reference"

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(())
        self.name = spec.name

    @property
    def identity(self) -> str:
        """Nothing that could change."""
        return "identity"

    def encode(self, audio: Samples) -> Coded:
        """Counted as 16-bit samples."""
        bits = PCM_BITS * audio.size
        return Coded(audio, audio.size, Bits(bits, 0), bits)

    def decode(self, coded: Coded) -> Samples:
        """The very samples."""
        return np.array(coded.payload, np.float32)


class LowPass(Identity):
    """`lowpass[:HZ]`: the 3.5 kHz anchor of ITU-R BS.1534 and the paper's listening test, linear phase."""

    series = "Low-pass anchor"
    taps = 255

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(())
        self.cutoff = Spec("lowpass", options={"hz": spec.argument or "3500"}).number("hz") or 0.0
        self.name = spec.name
        self.title = f"Anchor ({self.cutoff / 1000:g} kHz low-pass)"

    @property
    def identity(self) -> str:
        """The filter."""
        return f"FIR {self.taps} taps, {self.cutoff:g} Hz"

    @cached_property
    def _filter(self) -> Samples:
        signal = require("scipy.signal", "scipy")
        return np.asarray(signal.firwin(self.taps, self.cutoff, fs=SAMPLE_RATE), np.float32)

    def decode(self, coded: Coded) -> Samples:
        """Low-passed, delay compensated."""
        convolve = require("scipy.signal", "scipy").fftconvolve
        return np.asarray(convolve(coded.payload, self._filter, mode="full"), np.float32)[
            self.taps // 2 : self.taps // 2 + coded.num_samples
        ]
