"""Mel-cepstral distortion (Kubichek 1993): how far apart the shapes of two spectra are, whatever their level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import AudioError
from ..specs import Spec
from ..speech.audio import Samples
from ..system.optional import import_optional, package_version
from .base import Last, Metric, Sample, Score
from .speaker import log_mel_filterbank

COEFFICIENTS = 24
FLOOR_DB = 70
"""Below the loudest band of the reference: what is fainter counts as silence."""
WINDOW = 400
"""Samples of one frame."""


class MCD(Metric):
    """10 / ln 10 * sqrt(2 * sum of squared differences) of cepstra 1 ... 24, the mean over frames; no time warping.

    The cepstra are those of log amplitude, so this is the root mean square of the difference in dB between the two
    smoothed spectra, over mel frequency.
    """

    label = "MCD"
    unit = "dB"
    higher_is_better = False

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._reference_bands = Last(log_mel_filterbank)

    @property
    def judge(self) -> str:
        package = package_version("kaldi_native_fbank")
        return f"MCD of {COEFFICIENTS} cepstra of 80 mel bands, frames of 25 ms every 10, no warping ({package})"

    def load(self) -> None:
        import_optional("kaldi_native_fbank")
        import_optional("scipy.fft")

    def measure(self, sample: Sample) -> Score:
        if sample.reference.size < WINDOW:
            raise AudioError(f"MCD has no value for less than {WINDOW} samples")
        reference, decoded = self._reference_bands(sample.reference), log_mel_filterbank(sample.decoded)
        floor = reference.max() - FLOOR_DB * np.log(10) / 10
        difference = cepstra(np.maximum(decoded, floor)) - cepstra(np.maximum(reference, floor))
        frames = 10 / np.log(10) * np.sqrt(2 * np.square(difference).sum(axis=1))
        return Score(float(frames.mean()))


def cepstra(log_power: npt.NDArray[np.float32]) -> Samples:
    """log_power: (frames, bands), natural logarithms -> (frames, 24): log amplitude = c_0 + sum of c_m cos(m w)."""
    dct = import_optional("scipy.fft").dct
    bands = log_power.shape[1]
    coefficients = dct(log_power / 2, type=2, axis=1, norm="ortho") * np.sqrt(2 / bands)
    return np.asarray(coefficients[:, 1 : COEFFICIENTS + 1], np.float32)
