"""Frames, the STFT front end (paper Section 3.1.2) and mel filters.

Front end and heads use a Hann window of four hops and "same" padding: (n_fft - hop) / 2 zeros on each side, so that a
signal of N hops has exactly N frames, frame t centred on hop t.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import mels
from ..config import COMPRESSION, PITCH_BINS, CodecConfig
from .pitch import PitchSalience


def frame_signal(audio: Tensor, n_fft: int, hop_length: int) -> Tensor:
    """Overlapping frames with "same" padding. audio: (..., N hop) -> (..., N, n_fft)"""
    padding = (n_fft - hop_length) // 2
    return F.pad(audio, (padding, padding)).unfold(-1, n_fft, hop_length)


def overlap_add(frames: Tensor, hop_length: int) -> Tensor:
    """The sum of frames laid `hop_length` apart, untrimmed. (..., N, r hop) -> (..., (N + r - 1) hop)"""
    overlap = frames.shape[-1] // hop_length
    pieces = frames.reshape(*frames.shape[:-1], overlap, hop_length)  # (..., N, r, hop)
    total = sum(F.pad(pieces[..., i, :], (0, 0, i, overlap - 1 - i)) for i in range(overlap))
    assert isinstance(total, Tensor)
    return total.flatten(-2)


class FrontEnd(nn.Module):
    """Spectral frames, linearly projected.

    The paper projects real and imaginary parts. These rotate from frame to frame, so neighbouring vectors come
    out nearly orthogonal early in training; with the log-magnitude beside them a small model needed half the
    steps to the same mel loss and its Stage-1 path became smooth. Both are a choice of the config.
    """

    window: Tensor

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        n_fft, bins = config.n_fft, config.n_fft // 2 + 1
        self.log_magnitude = config.spectral_features != "complex"
        with_pitch = config.spectral_features == "complex+logmag+pitch"
        self.salience = PitchSalience(n_fft, config.sample_rate) if with_pitch else None
        width = (3 if self.log_magnitude else 2) * bins + (PITCH_BINS if with_pitch else 0)
        self.project = nn.Linear(width, config.dim)
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)

    def spectrum(self, frames: Tensor) -> Tensor:
        """Windowed FFT in float32. (..., n_fft) -> (..., bins) complex"""
        spectrum: Tensor = torch.fft.rfft(frames.float() * self.window)
        return spectrum

    def forward(self, spectrum: Tensor, frames: Tensor) -> Tensor:
        """(..., bins) complex and the (..., n_fft) that it is of -> (..., D)"""
        power = spectrum.real.square() + spectrum.imag.square()
        scale = (power + 1e-8) ** ((COMPRESSION - 1) / 2)
        features = [spectrum.real * scale, spectrum.imag * scale]
        if self.log_magnitude:
            features.append(0.1 * torch.log(power + 1e-8) + 0.5)  # about -1.3 in silence, 1 at full scale
        if self.salience is not None:
            features.append(self.salience(frames))
        projected: Tensor = self.project(torch.cat(features, -1))
        return projected


def mel_filterbank(sample_rate: int, n_fft: int, n_mels: int) -> Tensor:
    """`mels.mel_filterbank` as a tensor. -> (n_mels, n_fft / 2 + 1)"""
    return torch.from_numpy(mels.mel_filterbank(sample_rate, n_fft, n_mels))
