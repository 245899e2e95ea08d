"""Metrics that compare waveforms: PESQ, STOI, ESTOI, SI-SDR (paper Section 4.1)."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np

from ..errors import AudioError
from ..system.optional import import_optional, package_version
from .base import SAMPLE_RATE, Metric, Sample, Score


class PESQ(Metric):
    """Wide-band PESQ, ITU-T P.862.2, 1.04 ... 4.64."""

    label = "PESQ"

    @property
    def judge(self) -> str:
        return f"PESQ wide band ({package_version('pesq')})"

    def load(self) -> None:
        import_optional("pesq")

    def measure(self, sample: Sample) -> Score:
        _require_sound(sample, self.label)
        pesq = import_optional("pesq")
        try:
            return Score(float(pesq.pesq(SAMPLE_RATE, sample.reference, sample.decoded, "wb")))
        except pesq.PesqError as error:  # no utterance detected, or shorter than the model's window
            detail = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
            raise AudioError(f"PESQ has no value: {detail}") from None


class STOI(Metric):
    """Short-time objective intelligibility, up to 1."""

    label = "STOI"
    decimals = 3
    extended: ClassVar[bool] = False

    @property
    def judge(self) -> str:
        return f"{self.label} ({package_version('pystoi')})"

    def load(self) -> None:
        import_optional("pystoi")

    def measure(self, sample: Sample) -> Score:
        _require_sound(sample, self.label)
        stoi = import_optional("pystoi").stoi
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # pystoi warns and gives 1e-5 where it has no value
            try:
                return Score(float(stoi(sample.reference, sample.decoded, SAMPLE_RATE, extended=self.extended)))
            except RuntimeWarning as warning:
                raise AudioError(f"{self.label} has no value: {str(warning).split('.')[0]}") from None


class ESTOI(STOI):
    """Extended STOI, which also counts modulated noise."""

    label = "ESTOI"
    extended = True


class SISDR(Metric):
    """Scale-invariant signal-to-distortion ratio; low for any codec that does not keep the phase."""

    label = "SI-SDR"
    unit = "dB"
    limit: ClassVar[float] = 100.0
    """dB given to a signal that is the reference itself."""

    @property
    def judge(self) -> str:
        return "SI-SDR (formula, means removed)"

    def measure(self, sample: Sample) -> Score:
        """10 log10 of the energy along the reference over the rest."""
        reference = sample.reference - sample.reference.mean(dtype=np.float64)
        decoded = sample.decoded - sample.decoded.mean(dtype=np.float64)
        target = (decoded @ reference) / max(float(reference @ reference), 1e-20) * reference
        signal, noise = float(target @ target), float(np.square(decoded - target).sum())
        ratio = 10 * np.log10(max(signal, 1e-20) / max(noise, 1e-20))
        return Score(float(np.clip(ratio, -self.limit, self.limit)))


def _require_sound(sample: Sample, label: str) -> None:
    """Neither package notices a silent reference."""
    if not sample.reference.any():
        raise AudioError(f"{label} has no value: the reference is silent")
