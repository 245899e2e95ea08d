"""The multi-scale mel distance, for the loss and for the metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .spectral import mel_filterbank

LOG_FLOOR = 1e-5


class MultiScaleMelDistance(nn.Module):
    """L1 distance of log-mel spectrograms at several window lengths: the mean of each scale, summed over scales.

    A scale has 5 mel bands per 32 samples of window and a hop of a quarter window, as in DAC. Training minimises this
    (paper Section 3.1.6), and the metric `mel` reports it.
    """

    def __init__(self, sample_rate: int, windows: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(windows)
        for size in self.sizes:
            self.register_buffer(f"window_{size}", torch.hann_window(size), persistent=False)
            self.register_buffer(f"bank_{size}", mel_filterbank(sample_rate, size, 5 * size // 32).T, persistent=False)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """prediction, target: (B, T), longer than half the largest window -> scalar."""
        return self.between(prediction, self.log_mels(target))

    @torch.no_grad()
    def log_mels(self, target: Tensor) -> list[Tensor]:
        """What `between` compares with: worth keeping where one target meets many predictions. target: (B, T)"""
        with torch.autocast(target.device.type, enabled=False):
            return [
                (spectrogram(target.float(), window) @ bank).clamp_min_(LOG_FLOOR).log10_()
                for window, bank in self._scales()
            ]

    def between(self, prediction: Tensor, log_mels: list[Tensor]) -> Tensor:
        """prediction: (B, T); log_mels: of a target as long -> scalar."""
        distances = [
            _mel_distance(prediction, log_mel, window, bank)
            for log_mel, (window, bank) in zip(log_mels, self._scales(), strict=True)
        ]
        return torch.stack(distances).sum()

    @torch.no_grad()
    def over_time(self, prediction: Tensor, log_mels: list[Tensor], hop_length: int) -> Tensor:
        """The same distance around the middle of each hop. prediction: (1, T) -> (T / hop,)"""
        centres = torch.arange(prediction.shape[-1] // hop_length, device=prediction.device) + 0.5
        total = torch.zeros_like(centres)
        for ours, theirs, size in zip(self.log_mels(prediction), log_mels, self.sizes, strict=True):
            distances = (ours - theirs).abs().mean(-1)[0]  # of frames a quarter window apart, the first around sample 0
            place = centres * (4 * hop_length / size)
            before = place.long().clamp(max=distances.numel() - 2)
            total += torch.lerp(distances[before], distances[before + 1], (place - before).clamp(max=1))
        return total

    def _scales(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Window and mel filters of each scale."""
        return ((self.get_buffer(f"window_{size}"), self.get_buffer(f"bank_{size}")) for size in self.sizes)


class _MelDistance(torch.autograd.Function):
    """One scale with its gradient in closed form, in about half the time of autograd on a CPU.

    The gradient of the prediction is found in the forward pass, while the spectra are there, and only scaled in the
    backward pass. The target gets none.
    """

    @staticmethod
    def forward(ctx: Any, prediction: Tensor, target_log: Tensor, window: Tensor, bank: Tensor) -> Tensor:
        with torch.autocast(prediction.device.type, enabled=False):
            padded = _reflect(prediction.float(), window)
            spectrum = _spectrum(padded, window)
            magnitude = _magnitude(spectrum)
            mel = magnitude @ bank
            clamped = mel.clamp_min(LOG_FLOOR)
            difference = clamped.log10() - target_log
            loss = difference.abs().mean()
            if prediction.requires_grad:
                scale = 1 / (difference.numel() * math.log(10))
                mel_gradient = difference.sign_().div_(clamped).mul_(mel > LOG_FLOOR).mul_(scale)
                gradient = _adjoint(mel_gradient, spectrum, magnitude, window, bank, padded.shape[-1])
                ctx.save_for_backward(gradient.to(prediction.dtype))
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.saved_tensors[0] * gradients[0], None, None, None


_mel_distance: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = _MelDistance.apply


def spectrogram(audio: Tensor, window: Tensor) -> Tensor:
    """Magnitudes with a hop of a quarter window, ends mirrored. audio: (B, T) -> (B, frames, W / 2 + 1)."""
    return _magnitude(_spectrum(_reflect(audio, window), window))


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
