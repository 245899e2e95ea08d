"""Weights split over processes (`strategy: fsdp`): where a network is cut, and tensors from parts to whole.

Checkpoints hold whole tensors whatever the strategy, so a run may be resumed under another. Whatever is not split
passes through these functions as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from ..nn.transformer import Block
from .discriminators import PeriodDiscriminator, STFTDiscriminator

UNITS = (Block, PeriodDiscriminator, STFTDiscriminator)
"""Each of these is gathered from all processes when it computes, and let go afterwards."""


def sharding_strategy() -> Any:
    """A strategy for Fabric that splits every parameter, its gradient and its moments over all processes."""
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    return ModelParallelStrategy(_shard)


def _shard(module: nn.Module, mesh: Any) -> nn.Module:
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
    except ImportError as error:
        raise ConfigError("strategy = 'fsdp' needs torch 2.6 or newer") from error
    everyone = init_device_mesh(mesh.device_type, (mesh.size(),))  # Fabric's mesh is machines x devices
    for unit in [*(m for m in module.modules() if isinstance(m, UNITS)), module]:
        fully_shard(unit, mesh=everyone)
    if hasattr(module, "calibrated_tau"):  # runs outside of `forward`, and needs the weights put together too
        register_fsdp_forward_method(module, "calibrated_tau")
    return module


def whole(state: Any, keep: bool = True) -> Any:
    """State with its parts put together, in CPU memory. All processes take part; those that do not `keep` the result
    get their parts back."""
    if isinstance(state, dict):
        return {key: whole(value, keep) for key, value in state.items()}
    if not _is_split(state):
        return state
    gathered = state.full_tensor()
    return gathered.cpu() if keep else state


def split(state: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors by name, cut as those of `like` are."""
    return {name: _cut(tensor, like.get(name)) for name, tensor in state.items()}


def split_optimizer(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The whole state of an optimizer, its moments cut as its parameters are."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {i: {k: _cut(v, parameters[i]) for k, v in values.items()} for i, values in state["state"].items()}
    return {**state, "state": moments}


@contextmanager
def whole_parameter(module: nn.Module, name: str) -> Iterator[None]:
    """Within this context the parameter is whole; what all processes write to it stays."""
    parts = module.get_parameter(name)
    if not _is_split(parts):
        yield
        return
    gathered = nn.Parameter(whole(parts.detach()).to(parts.device))
    setattr(module, name, gathered)
    try:
        yield
    finally:
        setattr(module, name, parts)
    parts.detach().copy_(_cut(gathered.detach(), parts))


def _is_split(value: Any) -> bool:
    """Whether this is a DTensor; torch before 2.5 has them elsewhere, so they are known by what they can do."""
    return hasattr(value, "full_tensor")


def _cut(tensor: Any, like: Any) -> Any:
    """A whole tensor, split as `like` is if that is split and has the same shape. Every process has the whole."""
    if not _is_split(like) or getattr(tensor, "shape", None) != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
