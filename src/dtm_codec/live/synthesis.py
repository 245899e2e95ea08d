"""Kept steps to speech, some steps at a time: Dec1, Up, Dec2 and the head with what each carries along."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..network import Network
from ..nn.pitch import Pulses
from ..nn.spectral import overlap_add
from ..speech.audio import Samples
from .stacks import StackStream, Steps


class Synthesis:
    """The decoder's state from one step on."""

    def __init__(self, network: Network, first_step: int) -> None:
        self._network, self._device = network, network.tau.device
        self._dec1, self._dec2 = StackStream(network.dec1), StackStream(network.dec2)
        self._known = self._filled = first_step  # steps that were pushed, and that Dec2 has been given
        self._mask = torch.zeros(0, dtype=torch.bool, device=self._device)  # of the steps in between
        self._pulses: Pulses | None = None
        config = network.config
        self._hop, self._edge = config.hop_length, (config.n_fft - config.hop_length) // 2
        self._trim = self._edge  # what the first frames have before the first step
        # what the next frames are added to: their sum so far, and that of their squared windows
        self._sums = torch.zeros(2, config.n_fft - config.hop_length, device=self._device)

    def push(self, mask: npt.NDArray[np.bool_], codes: npt.NDArray[np.int64]) -> Samples:
        """The samples that are ready. mask: (S,), True = a token has come; codes: (K,)"""
        return self._advance(mask, codes, at_end=False)

    def finish(self) -> Samples:
        """The rest, when no more steps come."""
        samples = self._advance(np.zeros(0, bool), np.zeros(0, np.int64), at_end=True)
        return np.concatenate([samples, self._cut(self._normalised(self._sums[:, : self._edge]))])

    @torch.inference_mode()
    def _advance(self, mask: npt.NDArray[np.bool_], codes: npt.NDArray[np.int64], at_end: bool) -> Samples:
        network = self._network
        own = torch.from_numpy(mask).to(self._device)
        positions = self._known + own.nonzero().squeeze(1)
        self._known += mask.size
        self._mask = torch.cat([self._mask, own])
        frontier = math.inf if at_end else float(self._known)
        values = network.quantizer.decode(torch.from_numpy(codes).to(self._device))
        h = self._dec1.push(Steps(values, positions, frontier))
        end = int(min(h.frontier, self._known))
        ready, self._mask = self._mask[: end - self._filled], self._mask[end - self._filled :]
        z1_hat = network.up(h.values, ready)
        times = torch.arange(self._filled, end, device=self._device)
        self._filled = end
        y = self._dec2.push(Steps(z1_hat, times, math.inf if at_end else float(end)))
        if not y.values.shape[0]:
            return np.zeros(0, np.float32)
        frames, _, self._pulses = network.head(y.values, y.positions, state=self._pulses)
        return self._cut(self._overlapped(frames))

    def _overlapped(self, frames: Tensor) -> Samples:
        """The samples that no later frame adds to. frames: (S, n_fft) -> (S hop,)"""
        windows = self._network.head.window.square().expand_as(frames)
        sums = overlap_add(torch.stack([frames, windows]), self._hop)
        sums[:, : self._sums.shape[1]] += self._sums
        complete = frames.shape[0] * self._hop
        self._sums = sums[:, complete:].clone()
        return self._normalised(sums[:, :complete])

    @staticmethod
    def _normalised(sums: Tensor) -> Samples:
        samples: Samples = (sums[0] / sums[1].clamp(min=1e-8)).cpu().numpy()
        return samples

    def _cut(self, samples: Samples) -> Samples:
        """Without what lies before the first step."""
        cut = min(self._trim, samples.size)
        self._trim -= cut
        return samples[cut:]
