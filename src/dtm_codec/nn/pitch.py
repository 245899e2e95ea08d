"""Pitch on a logarithmic grid: seen in speech, predicted by a network, and added up to a pulse train."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..config import HIGHEST_PITCH, LOWEST_PITCH, PITCH_BINS


def pitch_of_bins(bins: Tensor) -> Tensor:
    return LOWEST_PITCH * (HIGHEST_PITCH / LOWEST_PITCH) ** (bins / (PITCH_BINS - 1))


class PitchSalience(nn.Module):
    """Frames to the salience of every pitch bin: 1 where a frame repeats itself perfectly, about 0 in noise.

    Autocorrelation of a windowed frame over that of the window (Boersma).
    """

    window: Tensor
    lags: Tensor
    silence: Tensor
    gain: Tensor

    def __init__(self, frame_length: int, sample_rate: int) -> None:
        super().__init__()
        longest = math.ceil(sample_rate / LOWEST_PITCH) + 2
        self.fft_length = 1 << (frame_length + longest - 1).bit_length()  # lags up to the longest do not wrap around
        window = torch.hann_window(frame_length)
        ideal = self._autocorrelation(window)
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("lags", sample_rate / pitch_of_bins(torch.arange(PITCH_BINS)), persistent=False)
        self.register_buffer("silence", 1e-6 * ideal[0], persistent=False)
        self.register_buffer("gain", ideal[0] / ideal.clamp_min(0.02 * ideal[0]), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        """(..., frame_length) -> (..., bins)"""
        frames = frames.float()
        correlation = self._autocorrelation((frames - frames.mean(-1, keepdim=True)) * self.window)
        correlation = correlation / (correlation[..., :1] + self.silence) * self.gain
        whole = self.lags.floor().long()
        t = self.lags - whole
        a, b, c, d = (correlation[..., whole + i] for i in (-1, 0, 1, 2))
        return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))  # Catmull-Rom

    def _autocorrelation(self, frames: Tensor) -> Tensor:
        """(..., frame_length) -> (..., lags from 0)"""
        spectrum = torch.fft.rfft(frames, self.fft_length)
        # abs() would take three times as long
        power = torch.addcmul(spectrum.real * spectrum.real, spectrum.imag, spectrum.imag)
        correlation: Tensor = torch.fft.irfft(power, self.fft_length)
        return correlation[..., : frames.shape[-1]]


def predicted_pitch(logits: Tensor) -> Tensor:
    """Hertz: the centre of mass around the highest bin. (S, bins) -> (S,)"""
    around = logits.argmax(-1, keepdim=True) + torch.arange(-3, 4, device=logits.device)
    around = around.clamp(0, PITCH_BINS - 1)
    # in float64: phases add up the pitch, and with it the rounding, for as long as someone speaks
    centre = (logits.gather(-1, around).double().softmax(-1) * around).sum(-1)
    return pitch_of_bins(centre)


class Pulses(NamedTuple):
    """A pulse train at the centres of frames. pitch: (S,) hertz; phase: (S,) radians, float64"""

    pitch: Tensor
    phase: Tensor

    @classmethod
    def following(cls, pitch: Tensor, positions: Tensor, seconds: float, before: Pulses | None = None) -> Pulses:
        """Add up a pitch over frames `seconds` apart. It starts anew at every position 0, and goes on from the end of
        `before` otherwise. pitch, positions: (S,)"""
        pitch = pitch.double()
        previous = pitch[:1] if before is None else before.pitch[-1:]
        turned = (math.pi * seconds * (pitch + torch.cat([previous, pitch[:-1]]))).cumsum(0)
        earlier = turned[:1] if before is None else -before.phase[-1:]
        starts = torch.where(positions == 0, turned, -math.inf).cummax(0).values
        return cls(pitch, (turned - torch.where(starts.isinf(), earlier, starts)) % (2 * math.pi))
