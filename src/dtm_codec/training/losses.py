"""What training minimises beside the mel distance (paper Section 3.1.6): LSGAN, feature matching, spectra."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SpectralLoss(nn.Module):
    """L1 distance of magnitudes to the power 0.3 at several window lengths, every bin alike; the mean over scales."""

    SIZES, POWER = (512, 1024, 2048), 0.3

    def __init__(self) -> None:
        super().__init__()
        for size in self.SIZES:
            self.register_buffer(f"window_{size}", torch.hann_window(size), persistent=False)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """prediction, target: (B, T), longer than half the largest window -> scalar."""
        return torch.stack([self._distance(prediction, target, size) for size in self.SIZES]).mean()

    def _distance(self, prediction: Tensor, target: Tensor, size: int) -> Tensor:
        window = self.get_buffer(f"window_{size}")
        with torch.autocast(prediction.device.type, enabled=False):
            return F.l1_loss(self._compressed(prediction, window), self._compressed(target, window))

    def _compressed(self, audio: Tensor, window: Tensor) -> Tensor:
        size = window.numel()
        spectrum = torch.stft(audio.float(), size, size // 4, window=window, return_complex=True)
        return (spectrum.real.square() + spectrum.imag.square() + 1e-6).pow(self.POWER / 2)


def discriminator_loss(real: Sequence[Tensor], fake: Sequence[Tensor]) -> Tensor:
    """LSGAN: real scores to 1, fake scores to 0; the mean of each sub-discriminator, summed."""
    pairs = [(r.float(), f.float()) for r, f in zip(real, fake, strict=True)]
    return torch.stack([(1 - r).square().mean() + f.square().mean() for r, f in pairs]).sum()


def adversarial_loss(fake: Sequence[Tensor]) -> Tensor:
    """LSGAN for the generator: fake scores to 1; the mean of each sub-discriminator, summed."""
    return torch.stack([(1 - f.float()).square().mean() for f in fake]).sum()


def feature_matching_loss(real: Sequence[Sequence[Tensor]], fake: Sequence[Sequence[Tensor]]) -> Tensor:
    """L1 distance of the discriminators' hidden layers: the mean of each layer, summed over all of them."""
    pairs = [pair for r, f in zip(real, fake, strict=True) for pair in zip(r, f, strict=True)]
    return torch.stack([F.l1_loss(f.float(), r.float()) for r, f in pairs]).sum()
