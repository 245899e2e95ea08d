"""Distances of spectrograms at several window lengths, as DAC reports them; 0 is equal."""

from __future__ import annotations

from abc import abstractmethod
from functools import cache

import torch
from torch import Tensor

from ..errors import AudioError
from ..nn.mel_distance import LOG_FLOOR, MultiScaleMelDistance, spectrogram
from .base import SAMPLE_RATE, Metric, Sample, Score

SHORTEST = 1025
"""Samples: the longest window is 2048, and half of it is mirrored at either end."""


class _SpectralDistance(Metric):
    decimals = 3
    higher_is_better = False

    def measure(self, sample: Sample) -> Score:
        if sample.decoded.size < SHORTEST:
            raise AudioError(f"{self.label} has no value for less than {SHORTEST} samples")
        return Score(self.distance(torch.from_numpy(sample.decoded)[None], torch.from_numpy(sample.reference)[None]))

    @abstractmethod
    def distance(self, decoded: Tensor, reference: Tensor) -> float:
        """(1, T), (1, T)"""


class MelDistance(_SpectralDistance):
    """The mel loss of training, at the paper's seven scales."""

    label = "Mel"

    @property
    def judge(self) -> str:
        return "multi-scale log10-mel L1, windows 32-2048, mirrored ends (formula)"

    def distance(self, decoded: Tensor, reference: Tensor) -> float:
        return float(_mel_distance()(decoded, reference))


@cache
def _mel_distance() -> MultiScaleMelDistance:
    return MultiScaleMelDistance(SAMPLE_RATE, (32, 64, 128, 256, 512, 1024, 2048))


class STFTDistance(_SpectralDistance):
    """Log-power and magnitude L1 at windows 2048 and 512, as DAC defines it."""

    label = "STFT"

    @property
    def judge(self) -> str:
        return "multi-scale STFT L1, log10 of the power and magnitude, windows 2048 and 512, mirrored ends (formula)"

    def distance(self, decoded: Tensor, reference: Tensor) -> float:
        total = 0.0
        for size in (2048, 512):
            pair = [spectrogram(audio, torch.hann_window(size)) for audio in (decoded, reference)]
            logs = [magnitude.clamp(min=LOG_FLOOR).log10() for magnitude in pair]
            total += 2 * _mean_difference(*logs) + _mean_difference(*pair)
        return total


class LogSpectralDistance(_SpectralDistance):
    """Root mean square over frequency of the difference in dB, the mean over frames."""

    label = "LSD"
    unit = "dB"
    decimals = 2

    @property
    def judge(self) -> str:
        return "log-spectral distance of power, window 512, hop 128, mirrored ends (formula)"

    def distance(self, decoded: Tensor, reference: Tensor) -> float:
        logs = [
            20 * spectrogram(audio, torch.hann_window(512)).clamp(min=LOG_FLOOR).log10()
            for audio in (decoded, reference)
        ]
        return float((logs[0] - logs[1]).square().mean(-1).sqrt().mean())


def _mean_difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().mean())
