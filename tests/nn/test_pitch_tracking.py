"""The tracker follows a gliding voice, and knows where there is none."""

from __future__ import annotations

import math

import torch

from dtm_codec.config import PITCH_BINS, CodecConfig
from dtm_codec.nn.pitch_tracking import PitchTracker, pitch_loss


def test_a_glide_is_followed_within_two_percent() -> None:
    seconds = torch.arange(32_000) / 16_000
    hertz = 110 * 2 ** (seconds / 2)  # an octave in two seconds
    phase = 2 * math.pi * torch.cumsum(hertz.double(), 0) / 16_000
    voice = 0.05 * torch.stack([torch.cos(h * phase) for h in range(1, 12)]).sum(0).float()
    track = PitchTracker(CodecConfig())(voice[None])
    middle = slice(5, 195)
    true = hertz[80::160]
    torch.testing.assert_close(track.hertz[0, middle], true[middle], rtol=0.02, atol=0)
    assert float(track.weight[0, middle].min()) > 0.9


def test_noise_has_little_weight() -> None:
    noise = 0.1 * torch.randn(1, 32_000, generator=torch.Generator().manual_seed(0))
    assert float(PitchTracker(CodecConfig())(noise).weight.mean()) < 0.35


def test_the_loss_is_least_at_the_true_pitch_and_ignores_frames_without_one() -> None:
    voice = 0.1 * torch.sin(2 * math.pi * 150 * torch.arange(16_000) / 16_000)
    track = PitchTracker(CodecConfig())(torch.stack([voice, torch.zeros(16_000)]))
    bins = torch.arange(PITCH_BINS)

    def loss(shift: float) -> float:
        return float(pitch_loss(-0.5 * (bins - track.bins.flatten()[:, None] - shift).square(), track))

    assert loss(0) < loss(1) < loss(5)
    silent = pitch_loss(torch.randn(100, PITCH_BINS), PitchTracker(CodecConfig())(torch.zeros(1, 16_000)))
    assert float(silent) == 0
