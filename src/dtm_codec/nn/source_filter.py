"""A source-filter head: pulses of a predicted pitch and noise, each shaped by a predicted spectrum.

A network whose attention is relative answers constant input with constant output, so the plain iSTFT head can only
rotate the phases of a steady vowel if the tokens spell out where each pulse falls. That costs bits, and a small model
needs very long to learn it. Here time itself moves the phases: the head adds up the predicted pitch, and the network
decides only how loud pulses and noise are in each bin.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .pitch import PITCH_BINS, Pulses, predicted_pitch
from .spectral import MAX_MAGNITUDE, Head, polar

NOISE_FRAMES = 1024
"""Frames after which the noise repeats itself."""


class SourceFilterHead(Head):
    """Pulses and noise, each with a magnitude for every bin; the pulses with a phase beside that."""

    noise: Tensor
    seconds: Tensor

    def __init__(self, n_fft: int, hop_length: int, dim: int, sample_rate: int) -> None:
        super().__init__(n_fft, hop_length)
        self.sample_rate = sample_rate
        bins = n_fft // 2 + 1
        self.project = nn.Linear(dim, 3 * bins)
        self.project_pitch = nn.Linear(dim, PITCH_BINS)
        self.register_buffer("seconds", (torch.arange(n_fft) - n_fft / 2) / sample_rate, persistent=False)
        angles = 2 * math.pi * torch.rand(NOISE_FRAMES, bins, generator=torch.Generator().manual_seed(0))
        self.register_buffer("noise", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def start_quiet(self) -> None:
        """Begin with both sources 26 dB down, where speech is most of the time."""
        log_magnitudes = 2 * (self.n_fft // 2 + 1)
        nn.init.constant_(self.project.bias[:log_magnitudes], -3.0)

    def pitch_logits(self, x: Tensor) -> Tensor:
        """(S, D) -> (S, bins)"""
        logits: Tensor = self.project_pitch(x).float()
        return logits

    def pulses(self, pitch: Tensor, positions: Tensor, before: Pulses | None = None) -> Pulses:
        """The pulse train of a pitch. pitch: (S,) hertz, positions: (S,)"""
        return Pulses.following(pitch, positions, self.hop_length / self.sample_rate, before)

    def render(self, x: Tensor, positions: Tensor, before: Pulses | None) -> tuple[Tensor, Pulses]:
        """Frames that follow the predicted pitch, and where they leave it. x: (S, D), positions: (S,)"""
        pulses = self.pulses(predicted_pitch(self.pitch_logits(x)), positions, before)
        return self(x, positions, pulses), pulses

    def forward(self, x: Tensor, positions: Tensor, pulses: Pulses) -> Tensor:
        """x: (S, D), positions: (S,) -> (S, n_fft)"""
        log_pulses, log_noise, phase = self.project(x).float().chunk(3, -1)
        noise = self.noise[positions % NOISE_FRAMES] * log_noise.exp().clamp(max=MAX_MAGNITUDE)
        return self.frames(self._pulse_spectrum(pulses) * polar(log_pulses, phase) + noise)

    @torch.no_grad()
    def _pulse_spectrum(self, pulses: Pulses) -> Tensor:
        """All harmonics below the Nyquist frequency with the same magnitude, about 1. -> (S, bins)"""
        pitch = pulses.pitch.float()[:, None]
        angle = pulses.phase.float()[:, None] + 2 * math.pi * pitch * self.seconds  # (S, n_fft)
        harmonics = torch.floor(self.sample_rate / 2 / pitch)
        half = torch.sin(angle / 2)
        at_pulse = half.abs() < 1e-3
        # the sum of cos(h angle) over harmonics h, in closed form
        waves = torch.sin((harmonics + 0.5) * angle) / (2 * half.masked_fill_(at_pulse, 1.0)) - 0.5
        waves = torch.where(at_pulse, harmonics, waves) * (harmonics * self.n_fft / 4).rsqrt()
        spectrum: Tensor = torch.fft.rfft(waves * self.window)
        return spectrum
