"""The critics of adversarial training (paper Section 3.1.6): multi-period and multi-scale STFT discriminators.

Layer plans follow HiFi-GAN (MPD) and EnCodec (MS-STFT, complex input); widths are a matter of budget, so they are
set in the configuration.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from .config import DiscriminatorConfig

LOUDNESS = 10.0
"""Brings speech to a variance of about 1; networks learn slowly from small inputs."""


class Judgement(NamedTuple):
    """What the ensemble says of a batch; a tuple, for Fabric and DDP look into those."""

    scores: list[Tensor]
    """One tensor per sub-discriminator; 1 means real."""
    features: list[list[Tensor]]
    """Hidden activations per sub-discriminator, for feature matching."""


class Discriminators(nn.Module):
    def __init__(self, config: DiscriminatorConfig) -> None:
        super().__init__()
        self.members = nn.ModuleList(
            [
                *(PeriodDiscriminator(period, config.period_channels) for period in config.periods),
                *(STFTDiscriminator(n_fft, config.stft_channels, config.stft_power) for n_fft in config.stft_sizes),
            ]
        )

    def forward(self, audio: Tensor) -> Judgement:
        """audio: (B, T)."""
        scores, features = [], []
        for member in self.members:
            score, hidden = member(LOUDNESS * audio)
            scores.append(score)
            features.append(hidden)
        return Judgement(scores, features)


class PeriodDiscriminator(nn.Module):
    """Looks at every `period`-th sample: a stack of strided convolutions over each of the `period` phases."""

    def __init__(self, period: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.period = period
        strides = [3] * (len(channels) - 1) + [1]
        self.convolutions = nn.ModuleList(
            _normalized(nn.Conv1d(inputs, outputs, 5, stride, padding=2))
            for inputs, outputs, stride in zip((1, *channels), channels, strides, strict=False)
        )
        self.score = _normalized(nn.Conv1d(channels[-1], 1, 3, padding=1))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        """audio: (B, T) -> score (B x period, 1, ...), hidden activations."""
        padded = F.pad(audio[:, None], (0, -audio.shape[-1] % self.period), mode="reflect")[:, 0]
        # The kernels span one phase only, (5, 1) in HiFi-GAN's terms: phases are separate sequences of a batch.
        phases = padded.reshape(padded.shape[0], -1, self.period).transpose(1, 2)  # (B, period, T / period)
        return _run(self.convolutions, self.score, phases.reshape(-1, 1, phases.shape[-1]), slope=0.1)


class STFTDiscriminator(nn.Module):
    """Looks at the complex spectrogram at one resolution; magnitudes are raised to `power`."""

    window: Tensor

    def __init__(self, n_fft: int, channels: int, power: float = 1.0) -> None:
        super().__init__()
        self.n_fft, self.power = n_fft, power
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        plan = [
            (2, (3, 9), 1, 1),
            *((channels, (3, 9), 2, dilation) for dilation in (1, 2, 4)),
            (channels, (3, 3), 1, 1),
        ]
        self.convolutions = nn.ModuleList(
            _normalized(
                nn.Conv2d(
                    inputs,
                    channels,
                    kernel,
                    stride=(1, stride),
                    dilation=(dilation, 1),
                    padding=(dilation, kernel[1] // 2),
                )
            )
            for inputs, kernel, stride, dilation in plan
        )
        self.score = _normalized(nn.Conv2d(channels, 1, (3, 3), padding=1))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        """audio: (B, T) -> score (B, 1, frames, bins / 8), hidden activations."""
        with torch.autocast(audio.device.type, enabled=False):
            spectrum = torch.stft(
                audio.float(), self.n_fft, self.n_fft // 4, window=self.window, normalized=True, return_complex=True
            )
            image = torch.view_as_real(spectrum).permute(0, 3, 2, 1)  # (B, 2, frames, bins)
            if self.power != 1:
                image = image * (image.square().sum(1, keepdim=True) + 1e-4).pow((self.power - 1) / 2)
            image = image.contiguous(memory_format=torch.channels_last)  # twice as fast on a CPU
        return _run(self.convolutions, self.score, image, slope=0.2)


def _normalized(convolution: nn.Conv1d | nn.Conv2d) -> nn.Module:
    """With weight normalization, and weights that keep the variance of what passes through."""
    nn.init.kaiming_normal_(convolution.weight, a=0.1)
    assert convolution.bias is not None
    nn.init.zeros_(convolution.bias)
    normalized: nn.Module = weight_norm(convolution)
    return normalized


def _run(convolutions: nn.ModuleList, score: nn.Module, x: Tensor, slope: float) -> tuple[Tensor, list[Tensor]]:
    hidden = []
    for convolution in convolutions:
        x = F.leaky_relu(convolution(x), slope, inplace=True)
        hidden.append(x)
    return score(x), hidden
