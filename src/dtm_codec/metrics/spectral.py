"""Distances of spectrograms at several window lengths, as DAC reports them; 0 is equal."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ..nn.spectral import mel_filterbank
from .base import REFERENCE, SAMPLE_RATE, Metric, Sample, Samples, Score

_FLOOR = 1e-5


class MelDistance(Metric):
    """Multi-scale log-mel distance: what training minimises, mean L1 per scale, summed over seven scales."""

    label = "Mel"
    decimals = 3
    higher_is_better = False
    needs = REFERENCE
    windows = (32, 64, 128, 256, 512, 1024, 2048)

    @property
    def judge(self) -> str:
        """A formula."""
        return "multi-scale log10-mel L1, windows 32-2048 (formula)"

    def load(self) -> None:
        """Nothing to load."""

    def measure(self, sample: Sample) -> Score:
        """Sum over scales of the mean absolute difference."""
        total = 0.0
        for window in self.windows:
            bank = _mel_bank(window)
            reference, decoded = (_magnitudes(x, window) @ bank for x in (sample.reference, sample.decoded))
            total += _log_distance(reference, decoded)
        return Score(total)


class STFTDistance(Metric):
    """Multi-scale STFT distance: log-power and magnitude L1 at windows 2048 and 512, as DAC defines it."""

    label = "STFT"
    decimals = 3
    higher_is_better = False
    needs = REFERENCE
    windows = (2048, 512)

    @property
    def judge(self) -> str:
        """A formula."""
        return "multi-scale STFT L1, log10 of the power and magnitude, windows 2048 and 512 (formula)"

    def load(self) -> None:
        """Nothing to load."""

    def measure(self, sample: Sample) -> Score:
        """Sum over scales of both mean absolute differences."""
        total = 0.0
        for window in self.windows:
            reference, decoded = (_magnitudes(x, window) for x in (sample.reference, sample.decoded))
            total += 2 * _log_distance(reference, decoded) + float((reference - decoded).abs().mean())
        return Score(total)


def _log_distance(reference: Tensor, decoded: Tensor) -> float:
    return float((reference.clamp(min=_FLOOR).log10() - decoded.clamp(min=_FLOOR).log10()).abs().mean())


def _magnitudes(audio: Samples, window: int) -> Tensor:
    """(T,) -> (frames, window / 2 + 1), a hop of a quarter window."""
    spectrum = torch.stft(
        torch.from_numpy(audio),
        window,
        window // 4,
        window=torch.hann_window(window),
        pad_mode="constant",
        return_complex=True,
    )
    return spectrum.abs().T


@cache
def _mel_bank(window: int) -> Tensor:
    """(window / 2 + 1, bands): 5 bands per 32 samples of window."""
    return mel_filterbank(SAMPLE_RATE, window, 5 * window // 32).T.contiguous()
