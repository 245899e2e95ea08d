"""What turns vectors into sound: spectra by a network, then inverse FFT, synthesis window and overlap-add.

Here are the interface of heads and the paper's own (Section 3.1.2); `source_filter.py` has the one of small models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..config import MAX_MAGNITUDE, CodecConfig
from .pitch import Pulses
from .spectral import overlap_add


class HeadOutput(NamedTuple):
    frames: Tensor
    """(S, n_fft) windowed, to be overlap-added."""
    pitch_logits: Tensor | None
    """(S, bins) of a head that predicts pitch."""
    state: Pulses | None
    """Where a pulse train was left, for the piece that follows."""


class Head(nn.Module, ABC):
    window: Tensor

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.n_fft, self.hop_length = config.n_fft, config.hop_length
        self.register_buffer("window", torch.hann_window(self.n_fft), persistent=False)

    def initialize(self) -> None:
        """What a new head starts from, if not from small random matrices and biases of 0."""

    @abstractmethod
    def forward(
        self, x: Tensor, positions: Tensor, pitch: Tensor | None = None, state: Pulses | None = None
    ) -> HeadOutput:
        """x: (S, D), positions: (S,); pitch: (S,) hertz to follow instead of the predicted one; state: of the piece
        before, if this is not the first."""

    def pitch(self, x: Tensor) -> Tensor | None:
        """Hertz, if the head predicts it. (S, D) -> (S,)"""
        return None

    @abstractmethod
    def frames_of(self, x: Tensor, positions: Tensor, pulses: Pulses | None) -> Tensor:
        """Frames, given the pulses of a head that has a pitch. (S, D) -> (S, n_fft)"""

    def frames(self, spectrum: Tensor) -> Tensor:
        """Windowed frames, to be overlap-added. (..., bins) complex -> (..., n_fft)"""
        frames: Tensor = torch.fft.irfft(spectrum, n=self.n_fft)
        return frames * self.window

    def synthesize(self, frames: Tensor) -> Tensor:
        """Overlap-add, normalise and trim. (..., N, n_fft) -> (..., N hop)"""
        padding = (self.n_fft - self.hop_length) // 2
        windows = self.window.square().expand(frames.shape[-2], -1)
        audio, envelope = (overlap_add(x, self.hop_length)[..., padding:-padding] for x in (frames, windows))
        return audio / envelope


class SpectralHead(Head):
    """Log-magnitude and phase of every bin, freely predicted (Vocos; the paper's head)."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__(config)
        self.project = nn.Linear(config.dim, self.n_fft + 2)

    def forward(
        self, x: Tensor, positions: Tensor, pitch: Tensor | None = None, state: Pulses | None = None
    ) -> HeadOutput:
        return HeadOutput(self.frames_of(x, positions, None), None, None)

    def frames_of(self, x: Tensor, positions: Tensor, pulses: Pulses | None) -> Tensor:
        log_magnitude, phase = self.project(x).float().chunk(2, -1)
        return self.frames(polar(log_magnitude, phase))


def polar(log_magnitude: Tensor, phase: Tensor) -> Tensor:
    """A complex spectrum with its magnitudes clipped."""
    magnitude = log_magnitude.exp().clamp(max=MAX_MAGNITUDE)
    return torch.complex(magnitude * phase.cos(), magnitude * phase.sin())
