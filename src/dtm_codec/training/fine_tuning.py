"""Start from trained weights with another selector, quantizer, rate or depth: load what fits, report what is new."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from ..config import STACKS
from ..errors import ModelError
from ..models import hub
from ..network import Network
from . import checkpoints
from .discriminators import Discriminators


def initialize_from(source: str | PathLike[str], network: Network, discriminators: Discriminators) -> list[str]:
    """Copy matching weights from a run or checkpoint (its averaged weights and discriminators) or an exported model,
    with the discriminators beside it, if there are any.

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
        report = _fill_from_folder(discriminators, hub.weights_folder(Path(loaded.origin)))
    if selector != network.config.selector.to_dict() or not network.config.is_steered:
        weights = {name: tensor for name, tensor in weights.items() if name != "tau"}
    for stack in STACKS:
        weights, added = grown(weights, stack, network.config.layers(stack))
        if added:
            report.append(f"{stack}: {added} layers added, which pass on what they are given until they have learned")
    return [f"weights from {source}", *_fill(network, weights, "codec"), *report]


def grown(weights: dict[str, Tensor], stack: str, layers: int) -> tuple[dict[str, Tensor], int]:
    """The weights of a deeper stack that computes the same, and how many layers were added.

    Each layer is followed by its share of copies of itself. Copies have a layer scale of 0, so they add nothing yet,
    but what they would add is of use from the first step on.
    """
    block = re.compile(rf"{stack}\.blocks\.(\d+)\.(.+)")
    found = {name: match for name in weights if (match := block.fullmatch(name))}
    depth = 1 + max((int(match[1]) for match in found.values()), default=-1)
    if not 0 < depth < layers:
        return weights, 0
    deeper = {name: tensor for name, tensor in weights.items() if name not in found}
    origins = [layer * depth // layers for layer in range(layers)]
    for layer, origin in enumerate(origins):
        copied = layer > 0 and origins[layer - 1] == origin
        for name, match in found.items():
            if int(match[1]) == origin:
                tensor = weights[name]
                silent = copied and match[2].endswith("_scale")
                deeper[f"{stack}.blocks.{layer}.{match[2]}"] = torch.zeros_like(tensor) if silent else tensor
    return deeper, layers - depth


def _fill_from_folder(discriminators: Discriminators, folder: Path) -> list[str]:
    file = folder / hub.DISCRIMINATORS_FILE
    if not file.is_file():
        return [f"discriminators: new, {folder} has no {file.name}"]
    try:
        weights = safetensors.torch.load_file(file)
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelError(f"{file}: not a safetensors file ({error})") from None
    return _fill(discriminators, weights, "discriminators")


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
