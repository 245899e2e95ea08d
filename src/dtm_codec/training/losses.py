"""What training minimises (paper Section 3.1.6): multi-scale mel distance, LSGAN and feature matching."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..nn.spectral import mel_filterbank
from .pitch import PitchTrack

_LOG_FLOOR = 1e-5


class MultiScaleMelLoss(nn.Module):
    """L1 distance of log-mel spectrograms at several window lengths: the mean of each scale, summed over scales.

    A scale has 5 mel bands per 32 samples of window and a hop of a quarter window, as in DAC.
    """

    def __init__(self, sample_rate: int, windows: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(windows)
        for size in self.sizes:
            self.register_buffer(f"window_{size}", torch.hann_window(size), persistent=False)
            self.register_buffer(f"bank_{size}", mel_filterbank(sample_rate, size, 5 * size // 32).T, persistent=False)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """prediction, target: (B, T), longer than half the largest window -> scalar."""
        distances = [
            _mel_distance(prediction, target, self.get_buffer(f"window_{size}"), self.get_buffer(f"bank_{size}"))
            for size in self.sizes
        ]
        return torch.stack(distances).sum()


class _MelDistance(torch.autograd.Function):
    """One scale of the loss with its gradient in closed form, in about half the time of autograd on a CPU.

    The gradient of the prediction is found in the forward pass, while the spectra are there, and only scaled in the
    backward pass. The target gets none.
    """

    @staticmethod
    def forward(ctx: Any, prediction: Tensor, target: Tensor, window: Tensor, bank: Tensor) -> Tensor:
        with torch.autocast(prediction.device.type, enabled=False):
            target_magnitude = _magnitude(_spectrum(_reflect(target.float(), window), window))
            target_log = (target_magnitude @ bank).clamp_min_(_LOG_FLOOR).log10_()
            padded = _reflect(prediction.float(), window)
            spectrum = _spectrum(padded, window)
            magnitude = _magnitude(spectrum)
            mel = magnitude @ bank
            clamped = mel.clamp_min(_LOG_FLOOR)
            difference = clamped.log10() - target_log
            loss = difference.abs().mean()
            if prediction.requires_grad:
                scale = 1 / (difference.numel() * math.log(10))
                mel_gradient = difference.sign_().div_(clamped).mul_(mel > _LOG_FLOOR).mul_(scale)
                gradient = _adjoint(mel_gradient, spectrum, magnitude, window, bank, padded.shape[-1])
                ctx.save_for_backward(gradient.to(prediction.dtype))
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.saved_tensors[0] * gradients[0], None, None, None


_mel_distance: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = _MelDistance.apply


def _reflect(audio: Tensor, window: Tensor) -> Tensor:
    """Half a window of mirrored signal at either end. audio: (B, T) -> (B, T + W)."""
    return F.pad(audio, (window.numel() // 2, window.numel() // 2), mode="reflect")


def _spectrum(padded: Tensor, window: Tensor) -> Tensor:
    """STFT with a hop of a quarter window. padded: (B, T + W) -> (B, frames, W / 2 + 1) complex."""
    frames = padded.unfold(-1, window.numel(), window.numel() // 4)
    spectrum: Tensor = torch.fft.rfft(frames * window)
    return spectrum


def _magnitude(spectrum: Tensor) -> Tensor:
    """abs() in less than half the time on a CPU."""
    return torch.addcmul(spectrum.real * spectrum.real, spectrum.imag, spectrum.imag).sqrt_()


def _adjoint(
    mel_gradient: Tensor, spectrum: Tensor, magnitude: Tensor, window: Tensor, bank: Tensor, padded_length: int
) -> Tensor:
    """Pull the gradient of the mel spectrogram back to the signal. spectrum and magnitude are overwritten.

    mel_gradient: (B, frames, bands); spectrum, magnitude: (B, frames, W / 2 + 1) -> (B, T)
    """
    size, hop = window.numel(), window.numel() // 4
    # irfft counts every inner bin twice (it stands for its mirror image too): halve them.
    bank = torch.cat([bank[:1], bank[1:-1] / 2, bank[-1:]])
    scale = (mel_gradient @ bank.T).div_(magnitude.clamp_min_(1e-7))
    torch.view_as_real(spectrum).mul_(scale[..., None])  # complex times real takes twice as long
    frames = torch.fft.irfft(spectrum, n=size, norm="forward").mul_(window)
    blocks = frames.new_zeros(frames.shape[0], frames.shape[1] + 3, hop)
    for quarter in range(4):  # overlap-add
        blocks[:, quarter : quarter + frames.shape[1]] += frames[..., quarter * hop : (quarter + 1) * hop]
    padded = F.pad(blocks.flatten(1), (0, padded_length - blocks.shape[1] * hop))
    gradient = padded[:, size // 2 : -(size // 2)]
    gradient[:, 1 : size // 2 + 1] += padded[:, : size // 2].flip(-1)
    gradient[:, -(size // 2) - 1 : -1] += padded[:, -(size // 2) :].flip(-1)
    return gradient


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
        spectrum = _spectrum(_reflect(audio.float(), window), window)
        return (spectrum.real.square() + spectrum.imag.square() + 1e-6).pow(self.POWER / 2)


def pitch_loss(logits: Tensor, pitch: PitchTrack) -> Tensor:
    """Cross entropy with a narrow bell around the true bin, over the frames that have a pitch. logits: (B N, bins)"""
    bins = torch.arange(logits.shape[-1], device=logits.device)
    target = torch.softmax(-0.5 * (bins - pitch.bins.flatten()[:, None]).square(), -1)
    entropy = -(target * logits.float().log_softmax(-1)).sum(-1)
    weight = pitch.weight.flatten()
    return (entropy * weight).mean()


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
