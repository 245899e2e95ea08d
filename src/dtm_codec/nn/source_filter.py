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

from ..config import MAX_MAGNITUDE, NOISE_FRAMES, PITCH_BINS, CodecConfig
from .heads import Head, HeadOutput, polar
from .pitch import Pulses, predicted_pitch


class SourceFilterHead(Head):
    """Pulses and noise, each with a magnitude for every bin; the pulses with a phase beside that."""

    noise: Tensor
    seconds: Tensor

    def __init__(self, config: CodecConfig) -> None:
        super().__init__(config)
        n_fft, self.sample_rate = config.n_fft, config.sample_rate
        bins = n_fft // 2 + 1
        self.project = nn.Linear(config.dim, 3 * bins)
        self.project_pitch = nn.Linear(config.dim, PITCH_BINS)
        self.register_buffer("seconds", (torch.arange(n_fft) - n_fft / 2) / self.sample_rate, persistent=False)
        angles = 2 * math.pi * torch.rand(NOISE_FRAMES, bins, generator=torch.Generator().manual_seed(0))
        self.register_buffer("noise", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def initialize(self) -> None:
        """Begin with both sources 26 dB down, where speech is most of the time."""
        log_magnitudes = 2 * (self.n_fft // 2 + 1)
        nn.init.constant_(self.project.bias[:log_magnitudes], -3.0)

    def forward(
        self, x: Tensor, positions: Tensor, pitch: Tensor | None = None, state: Pulses | None = None
    ) -> HeadOutput:
        pitch_logits = self.project_pitch(x).float()
        hertz = predicted_pitch(pitch_logits) if pitch is None else pitch
        pulses = Pulses.following(hertz, positions, self.hop_length / self.sample_rate, state)
        return HeadOutput(self.frames_of(x, positions, pulses), pitch_logits, pulses)

    def pitch(self, x: Tensor) -> Tensor:
        return predicted_pitch(self.project_pitch(x).float())

    def frames_of(self, x: Tensor, positions: Tensor, pulses: Pulses | None) -> Tensor:
        assert pulses is not None
        log_pulses, log_noise, phase = self.project(x).float().chunk(3, -1)
        noise = self.noise[positions % NOISE_FRAMES] * log_noise.exp().clamp(max=MAX_MAGNITUDE)
        return self.frames(self._pulse_spectrum(pulses) * polar(log_pulses, phase) + noise)

    @torch.no_grad()
    def _pulse_spectrum(self, pulses: Pulses) -> Tensor:
        """All harmonics below the Nyquist frequency with the same magnitude, about 1. -> (S, bins)"""
        pitch, phase = pulses.pitch.double()[:, None], pulses.phase[:, None]
        # From -pi to pi before it becomes float32: around a pulse, hundreds of harmonics multiply its rounding.
        angle = phase + 2 * math.pi * pitch * self.seconds  # (S, n_fft)
        angle = ((angle + math.pi) % (2 * math.pi) - math.pi).float()
        harmonics = torch.floor(self.sample_rate / 2 / pitch).float()
        half = torch.sin(angle / 2)
        at_pulse = half.abs() < 1e-6
        # the sum of cos(h angle) over harmonics h, in closed form
        waves = torch.sin((harmonics + 0.5) * angle) / (2 * half.masked_fill_(at_pulse, 1.0)) - 0.5
        waves = torch.where(at_pulse, harmonics, waves) * (harmonics * self.n_fft / 4).rsqrt()
        spectrum: Tensor = torch.fft.rfft(waves * self.window)
        return spectrum
