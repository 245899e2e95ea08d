"""What became of the melody: errors of the pitch, and of where there is one. Pitch by Praat's autocorrelation."""

from __future__ import annotations

from abc import abstractmethod
from functools import cache

import numpy as np
import numpy.typing as npt

from ..errors import AudioError
from ..speech.audio import Samples
from ..system.optional import import_optional, package_version
from .base import SAMPLE_RATE, Last, Metric, Sample, Score

STEP_S = 0.01
FLOOR_HZ, CEILING_HZ = 60.0, 500.0
SHORTEST_S = 3 / FLOOR_HZ
"""Praat's window is three periods of the lowest pitch."""

Pitch = npt.NDArray[np.float64]
"""(frames,) in Hz, 0 where there is none."""


class _PitchMetric(Metric):
    higher_is_better = False

    @property
    def judge(self) -> str:
        version = package_version("parselmouth")
        return f"{self.definition}, Praat autocorrelation, {FLOOR_HZ:g}-{CEILING_HZ:g} Hz, every 10 ms ({version})"

    @property
    @abstractmethod
    def definition(self) -> str: ...

    def load(self) -> None:
        import_optional("parselmouth")

    def measure(self, sample: Sample) -> Score:
        if sample.reference.size <= (SHORTEST_S + STEP_S) * SAMPLE_RATE:
            raise AudioError(f"{self.label} has no value for less than {1000 * (SHORTEST_S + STEP_S):.0f} ms")
        reference, decoded = _pitch_of_reference()(sample.reference), _pitch_of_decoded()(sample.decoded)
        return self.compare(decoded, reference)

    @abstractmethod
    def compare(self, decoded: Pitch, reference: Pitch) -> Score: ...


class F0RMSE(_PitchMetric):
    """Root mean square error of the pitch in Hz, over the frames that are voiced in both."""

    label = "F0 RMSE"
    unit = "Hz"
    decimals = 1
    definition = "F0 RMSE over frames voiced in both"

    def compare(self, decoded: Pitch, reference: Pitch) -> Score:
        both = (decoded > 0) & (reference > 0)
        if not both.any():
            raise AudioError("F0 RMSE has no value: no frame is voiced in both")
        error = float(np.sqrt(np.mean((decoded[both] - reference[both]) ** 2)))
        return Score(error, weight=float(both.sum()))


class VoicingError(_PitchMetric):
    """Frames that are voiced in one and not in the other, of all frames."""

    label = "V/UV error"
    unit = "%"
    definition = "V/UV: share of frames voiced in one of the two"

    def compare(self, decoded: Pitch, reference: Pitch) -> Score:
        return Score(100 * float(np.mean((decoded > 0) != (reference > 0))), weight=float(reference.size))


def track(audio: Samples) -> Pitch:
    sound = import_optional("parselmouth").Sound(audio.astype(np.float64), SAMPLE_RATE)
    pitch = sound.to_pitch_ac(time_step=STEP_S, pitch_floor=FLOOR_HZ, pitch_ceiling=CEILING_HZ)
    frequencies: Pitch = pitch.selected_array["frequency"]
    return frequencies


@cache
def _pitch_of_reference() -> Last[Pitch]:
    """A reference is tracked once for all systems."""
    return Last(track)


@cache
def _pitch_of_decoded() -> Last[Pitch]:
    """Both metrics share what was tracked."""
    return Last(track)
