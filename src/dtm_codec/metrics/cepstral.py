"""Mel-cepstral distortion (Kubichek 1993): how far apart the shapes of two spectra are, whatever their level.

`mcd` is that of all frames. `mcd:quiet`, `mcd:steady` and `mcd:changing` share them out, to see where a codec errs.
"""

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
MOMENTS = ("quiet", "steady", "changing")
QUIET_DB = 40
"""Below the loudest frame of the reference: quiet."""
CHANGE_DB = 7.0
"""Distortion between what is 20 ms before and after a frame of the reference: more is changing, less is steady. About
half of the frames of read speech that are not quiet are either."""
REACH = 2
"""Frames to both sides that make 20 ms."""


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
        self.moment = spec.choice(MOMENTS, "") if spec.argument else None
        if self.moment:
            self.label = f"MCD, {self.moment}"
        self._reference_bands = Last(log_mel_filterbank)

    @property
    def judge(self) -> str:
        package = package_version("kaldi_native_fbank")
        frames = f"{self.moment} frames" if self.moment else "frames"
        return f"MCD of {COEFFICIENTS} cepstra of 80 mel bands, {frames} of 25 ms every 10, no warping ({package})"

    def load(self) -> None:
        import_optional("kaldi_native_fbank")
        import_optional("scipy.fft")

    def score(self, sample: Sample) -> Score | None:
        """None if the utterance has no such moment."""
        score = super().score(sample)
        return score if score is not None and score.weight > 0 else None

    def measure(self, sample: Sample) -> Score:
        if sample.reference.size < WINDOW:
            raise AudioError(f"{self.label} has no value for less than {WINDOW} samples")
        reference, decoded = self._reference_bands(sample.reference), log_mel_filterbank(sample.decoded)
        floor = reference.max() - FLOOR_DB * np.log(10) / 10
        heard, meant = (cepstra(np.maximum(bands, floor)) for bands in (decoded, reference))
        frames = distortion(heard, meant)
        if self.moment is None:
            return Score(float(frames.mean()))
        chosen = frames[moments(reference, meant) == MOMENTS.index(self.moment)]
        return Score(float(chosen.mean()) if chosen.size else 0.0, weight=chosen.size)


def moments(log_power: npt.NDArray[np.float32], coefficients: Samples) -> npt.NDArray[np.int64]:
    """Which of MOMENTS each frame is. (frames, bands), (frames, 24) -> (frames,)"""
    level = 10 / np.log(10) * np.logaddexp.reduce(log_power, axis=1)
    padded = np.pad(coefficients, ((REACH, REACH), (0, 0)), mode="edge")
    changing = distortion(padded[2 * REACH :], padded[: -2 * REACH]) > CHANGE_DB
    return np.where(level < level.max() - QUIET_DB, 0, 1 + changing)


def distortion(one: Samples, other: Samples) -> npt.NDArray[np.float64]:
    """In dB. (frames, 24), (frames, 24) -> (frames,)"""
    squares = np.square(one - other).sum(axis=1, dtype=np.float64)
    return np.asarray(10 / np.log(10) * np.sqrt(2 * squares))


def cepstra(log_power: npt.NDArray[np.float32]) -> Samples:
    """log_power: (frames, bands), natural logarithms -> (frames, 24): log amplitude = c_0 + sum of c_m cos(m w)."""
    dct = import_optional("scipy.fft").dct
    bands = log_power.shape[1]
    coefficients = dct(log_power / 2, type=2, axis=1, norm="ortho") * np.sqrt(2 / bands)
    return np.asarray(coefficients[:, 1 : COEFFICIENTS + 1], np.float32)
