"""The network in PyTorch, as `DTMCodec` speaks to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import CodecConfig, Stack
from ..models.weights import Array
from ..network import Network, fill, weights_of
from ..nn.pitch import Pulses as TensorPulses
from ..nn.timeline import Timeline
from ..selectors import Selector
from . import check_device
from .base import PIECE, Codes, Floats, Mask, Positions, Pulses

RANDOM_SEED = 0
"""Of the weights of 'random:PRESET', so that two processes make the same model."""


class TorchBackend:
    name = "torch"
    piece = PIECE

    def __init__(self, network: Network) -> None:
        self.network = network.eval().requires_grad_(False)

    @classmethod
    @torch.inference_mode(False)
    def load(cls, config: CodecConfig, tensors: dict[str, Array] | None) -> TorchBackend:
        """A network with these weights, or with random ones that are the same each time."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(RANDOM_SEED)
            network = Network(config)
        if tensors is not None:
            fill(network, tensors)
        return cls(network)

    @property
    def config(self) -> CodecConfig:
        return self.network.config

    @property
    def selector(self) -> Selector:
        return self.network.selector

    @property
    def tau(self) -> float:
        return float(self.network.tau)

    def use_selector(self, config: CodecConfig, selector: Selector) -> None:
        self.network.config, self.network.selector = config, selector
        self.network.tau.fill_(torch.nan)

    @torch.inference_mode()
    def front_end(self, frames: Floats) -> Floats:
        values = self._tensor(frames)
        return _array(self.network.front_end(self.network.front_end.spectrum(values), values))

    @torch.inference_mode()
    def log_mel(self, frames: Floats) -> Floats:
        return _array(self.network.log_mel(self.network.front_end.spectrum(self._tensor(frames))))

    @torch.inference_mode()
    def stack(self, name: Stack, x: Floats, positions: Positions) -> Floats:
        timeline = Timeline.of(self._tensor(positions))
        return _array(getattr(self.network, name)(self._tensor(x), timeline))

    @property
    def whole_segments(self) -> bool:
        return bool(self.network.down.whole_segments)

    @torch.inference_mode()
    def downsample(self, z1: Floats, mask: Mask) -> Floats:
        return _array(self.network.down(self._tensor(z1), self._tensor(mask)))

    @torch.inference_mode()
    def quantize(self, z2: Floats) -> Codes:
        return _array(self.network.quantizer.encode(self._tensor(z2)))

    @torch.inference_mode()
    def dequantize(self, codes: Codes) -> Floats:
        return _array(self.network.quantizer.decode(self._tensor(codes)))

    @torch.inference_mode()
    def upsample(self, h: Floats, mask: Mask) -> Floats:
        return _array(self.network.up(self._tensor(h), self._tensor(mask)))

    @torch.inference_mode()
    def pitch(self, y: Floats) -> npt.NDArray[np.float64] | None:
        hertz = self.network.head.pitch(self._tensor(y))
        return None if hertz is None else _array(hertz)

    @torch.inference_mode()
    def head(self, y: Floats, positions: Positions, pulses: Pulses | None) -> Floats:
        given = None if pulses is None else TensorPulses(*map(self._tensor, pulses))
        return _array(self.network.head.frames_of(self._tensor(y), self._tensor(positions), given))

    def vectors(self) -> Floats:
        return _array(self.network.quantizer.vectors())

    def weights(self) -> dict[str, Array]:
        return weights_of(self.network)

    def version(self) -> Any:
        """(A change through `.data` is hidden from torch and from this.)"""
        weights = self.network.state_dict(keep_vars=True).values()
        return tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights)

    def to(self, device: str) -> None:
        check_device(device)
        self.network.to(device)

    def use_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        # A view of what the caller holds. Frames are views that overlap, which torch takes only as a copy.
        return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(self.network.tau.device)


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.detach().cpu().numpy()
    return array
