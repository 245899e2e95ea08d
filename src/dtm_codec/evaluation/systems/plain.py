"""What stands beside codecs: the reference itself, and the low-pass anchor of listening tests."""

from __future__ import annotations

import numpy as np

from ...layout import Bits
from ...metrics.base import SAMPLE_RATE
from ...specs import Spec, positive_number
from ...speech.anchor import low_pass
from ...speech.audio import Samples
from .base import Coded, System

PCM_BITS = 16

UNCODED_SERIES = ("Reference", "Low-pass anchor")
"""They have no rate to speak of, and are not marked as best."""


class Identity(System):
    """The reference as it is: what each metric gives at best, and the WER of the recogniser itself."""

    title = series = UNCODED_SERIES[0]

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(())
        self.name = spec.name

    @property
    def identity(self) -> str:
        return "identity"

    def encode(self, audio: Samples) -> Coded:
        """Counted as 16-bit samples."""
        bits = PCM_BITS * audio.size
        return Coded(audio, audio.size, Bits(bits, 0), bits)

    def decode(self, coded: Coded) -> Samples:
        return np.array(coded.payload, np.float32)


class LowPass(Identity):
    """`lowpass[:HZ]`: the 3.5 kHz anchor of ITU-R BS.1534 and the paper's listening test, linear phase."""

    series = UNCODED_SERIES[1]

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.cutoff = positive_number(spec.argument or "3500", "lowpass")
        self.title = f"Anchor ({self.cutoff / 1000:g} kHz low-pass)"

    @property
    def identity(self) -> str:
        return f"Kaiser FIR, flat to {self.cutoff:g} Hz, 60 dB down from 8/7 of it on"

    def decode(self, coded: Coded) -> Samples:
        return low_pass(coded.payload, SAMPLE_RATE, self.cutoff)
