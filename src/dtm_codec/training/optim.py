"""Which parameters decay, and the moving average of weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .config import OptimizerConfig

NO_DECAY = ("codebook", "embedding")
"""Matrices and vectors that are looked up rather than multiplied with: decay would only shrink them."""


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Every trainable parameter in one of two groups: matrices and kernels decay; norms, scales, biases,
    embeddings and the codebook do not."""
    decay: list[nn.Parameter] = []
    keep: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            multiplied = parameter.ndim >= 2 and name.rsplit(".", 1)[-1] not in NO_DECAY
            # the magnitudes of weight norm are vectors in the shape of their kernels
            gain = name.endswith("parametrizations.weight.original0")
            (decay if multiplied and not gain else keep).append(parameter)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": keep, "weight_decay": 0.0}]


def build_optimizer(module: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    groups = parameter_groups(module, config.weight_decay)
    beta1, beta2 = config.betas
    return torch.optim.AdamW(groups, lr=config.lr, betas=(beta1, beta2), fused=True)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


class Average:
    """Moving average of a module's parameters; buffers are copied as they are, and so are codebooks: a code that is
    revived jumps, and an average of where it was and where it is means nothing."""

    weights: dict[str, Tensor]
    """As the module's state dict has them, split over processes where the module is."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.weights = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
        self.decay = decay

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Take in the weights after `step` steps. Early on the average is short: nothing is learned yet."""
        decay = min(self.decay, (1 + step) / (10 + step))
        parameters = dict(module.named_parameters())
        codebooks = {name: parameters.pop(name) for name in list(parameters) if name.endswith("codebook")}
        torch._foreach_lerp_([self.weights[name] for name in parameters], list(parameters.values()), 1 - decay)
        for name, tensor in (*codebooks.items(), *module.named_buffers()):
            if name in self.weights:
                self.weights[name].copy_(tensor)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        for name, average in self.weights.items():
            average.copy_(weights[name])
