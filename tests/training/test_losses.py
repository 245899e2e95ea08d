"""The closed-form mel loss is the textbook one; LSGAN and feature matching are what they say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dtm_codec.nn.mel_distance import MultiScaleMelDistance
from dtm_codec.nn.spectral import mel_filterbank
from dtm_codec.training import losses
from dtm_codec.training.config import LossConfig

WINDOWS = LossConfig().mel_windows


def textbook_mel_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """The same by torch.stft and autograd, in double precision."""
    total = torch.zeros((), dtype=torch.float64)
    for size in WINDOWS:
        bank = mel_filterbank(16_000, size, 5 * size // 32).double()
        window = torch.hann_window(size, dtype=torch.float64)
        logs = []
        for audio in (prediction, target):
            spectrum = torch.stft(audio, size, size // 4, window=window, pad_mode="reflect", return_complex=True)
            logs.append((bank @ spectrum.abs()).clamp_min(1e-5).log10())
        total = total + (logs[0] - logs[1]).abs().mean()
    return total


@pytest.mark.parametrize("length", [1200, 4000, 16_000])
def test_mel_loss_and_gradient_are_the_textbook_ones(length: int) -> None:
    torch.manual_seed(0)
    prediction = (0.1 * torch.randn(2, length)).requires_grad_()
    target = 0.1 * torch.randn(2, length)
    double = prediction.detach().double().requires_grad_()
    expected = textbook_mel_loss(double, target.double())
    expected.backward()
    loss = MultiScaleMelDistance(16_000, WINDOWS)(prediction, target)
    (3 * loss).backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    assert prediction.grad is not None
    assert double.grad is not None
    error = (prediction.grad / 3 - double.grad).norm() / double.grad.norm()
    assert error < 1e-3  # a sign of |.| may flip where the two agree to a float's last digits


def test_mel_loss_of_silence_and_of_equals() -> None:
    loss = MultiScaleMelDistance(16_000, WINDOWS)
    silence = torch.zeros(1, 4000, requires_grad=True)
    speech = 0.1 * torch.randn(1, 4000)
    distance = loss(silence, speech)
    distance.backward()
    assert distance > 1
    assert silence.grad is not None
    assert torch.isfinite(silence.grad).all()
    assert loss(speech, speech) == 0


def test_perfect_scores_cost_nothing() -> None:
    ones, zeros = [torch.ones(2, 3), torch.ones(4)], [torch.zeros(2, 3), torch.zeros(4)]
    assert losses.discriminator_loss(ones, zeros) == 0
    assert losses.discriminator_loss(zeros, ones) == 4  # two sub-discriminators, wrong on both halves
    assert losses.adversarial_loss(ones) == 0
    assert losses.adversarial_loss(zeros) == 2


def test_feature_matching_sums_layer_means() -> None:
    real = [[torch.zeros(2, 2), torch.zeros(3)], [torch.zeros(1)]]
    fake = [[torch.ones(2, 2), torch.full((3,), 2.0)], [torch.full((1,), -3.0)]]
    assert losses.feature_matching_loss(real, fake) == 1 + 2 + 3
