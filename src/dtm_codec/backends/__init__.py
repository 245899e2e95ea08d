"""Which backend computes a model. torch is imported only where it is used."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..config import BackendName, CodecConfig
from ..errors import ModelError
from ..models.hub import LoadedModel
from ..system.optional import import_optional
from .base import Backend

if TYPE_CHECKING:
    from ..network import Network

WITHOUT_TORCH: BackendName = "onnx-int8"
"""What computes where nobody asks for another and torch is not there or not needed: the quickest that loses nothing
one can measure (docs/onnx.md)."""

WITH_TORCHS_TOKENS: BackendName = "onnx"
"""The same where tokens themselves are the product, which must be the same on every machine."""


def check_device(device: str) -> None:
    """Refuse a device that this machine lacks, or that has no 64-bit numbers, which tau is (mps)."""
    if device == "cpu":
        return
    torch = import_optional("torch", "torch")
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ModelError(f"device = {device!r}; allowed: one that torch finds here ({error})") from error


def torch_network(backend: Backend) -> Network:
    """The network of a backend that is torch's."""
    import_optional("torch", "torch")
    from .pytorch import TorchBackend

    if not isinstance(backend, TorchBackend):
        raise ModelError(f"this needs backend = 'torch'; the codec was loaded with {backend.name!r}")
    return backend.network


def untrained(config: CodecConfig) -> Backend:
    import_optional("torch", "torch")
    from ..network import Network
    from .pytorch import TorchBackend

    return TorchBackend(Network(config))


def runs_in_onnx(loaded: LoadedModel) -> bool:
    """Whether a model can be computed without torch."""
    from .onnx.graphs import has_graphs

    return loaded.tensors is not None and has_graphs(loaded.config) and find_spec("onnxruntime") is not None


def quickest(
    loaded: LoadedModel, device: str, *, in_torch: bool = False, torchs_tokens: bool = False
) -> BackendName | None:
    """What commands compute with where no backend is named: onnxruntime, which starts in a third of torch's time, or
    what `load_backend` takes by itself. in_torch: what is asked for needs torch; torchs_tokens: tokens must be those
    that torch gives"""
    if device != "cpu" or in_torch or not runs_in_onnx(loaded):
        return None
    return WITH_TORCHS_TOKENS if torchs_tokens else WITHOUT_TORCH


def load_backend(loaded: LoadedModel, device: str, name: str | None) -> Backend:
    """What computes a model, by name; without one, torch where it is installed."""
    if name is None:
        name = "torch" if find_spec("torch") is not None else WITHOUT_TORCH
    if name == "torch" or loaded.tensors is None:
        import_optional("torch", "torch")
        from .pytorch import TorchBackend

        trained = TorchBackend.load(loaded.config, loaded.tensors)
        if name == "torch":
            trained.to(device)
            return trained
        loaded = replace(loaded, tensors=trained.weights())
    from .onnx.backend import PRECISIONS, OnnxBackend

    if name not in PRECISIONS:
        raise ModelError(f"backend = {name!r}; allowed: 'torch', {', '.join(map(repr, PRECISIONS))}")
    assert loaded.tensors is not None
    backend = OnnxBackend(loaded.config, loaded.tensors, name)
    backend.to(device)
    return backend
