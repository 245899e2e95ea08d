"""Start from trained weights with another selector, quantizer or rate: load what fits, report what is new."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..models import hub
from ..network import Network
from . import checkpoints
from .discriminators import Discriminators


def initialize_from(source: str | PathLike[str], network: Network, discriminators: Discriminators) -> list[str]:
    """Copy matching weights from a run or checkpoint (its averaged weights and discriminators) or an exported model.

    Returns lines for the log. tau is taken over only if the selector is the same and is steered: it means something
    else otherwise, and that of a stride or of Bernoulli draws is the keep ratio itself.
    """
    path = Path(source)
    if path.is_file() or checkpoints.latest(path) is not None:
        state = checkpoints.load(path)
        weights, selector = state["average"], state["config"]["model"]["selector"]
        report = _fill(discriminators, state["discriminators"], "discriminators")
    else:
        loaded = hub.load(source)
        weights = {name: torch.tensor(values) for name, values in (loaded.tensors or {}).items()}
        selector = loaded.config.selector.to_dict()
        report = ["discriminators: new, an exported model has none"]
    if selector != network.config.selector.to_dict() or not network.config.is_steered:
        weights = {name: tensor for name, tensor in weights.items() if name != "tau"}
    return [f"weights from {source}", *_fill(network, weights, "codec"), *report]


@torch.no_grad()
def _fill(module: nn.Module, weights: dict[str, Tensor], name: str) -> list[str]:
    own: dict[str, Any] = module.state_dict()
    fitting = {key: tensor for key, tensor in weights.items() if key in own and own[key].shape == tensor.shape}
    for key, tensor in fitting.items():
        own[key].copy_(tensor)
    new, unused = sorted(set(own) - set(fitting)), sorted(set(weights) - set(fitting))
    report = [f"{name}: {len(fitting)} of {len(own)} tensors taken over"]
    report += [f"{name}: new: {', '.join(new)}"] if new else []
    return report + ([f"{name}: not used: {', '.join(unused)}"] if unused else [])
