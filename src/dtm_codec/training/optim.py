"""Which parameters decay, and the moving average of weights."""

from __future__ import annotations

import copy
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from .config import OptimizerConfig

Module = TypeVar("Module", bound=nn.Module)

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
    """AdamW over `parameter_groups`."""
    groups = parameter_groups(module, config.weight_decay)
    beta1, beta2 = config.betas
    return torch.optim.AdamW(groups, lr=config.lr, betas=(beta1, beta2), fused=True)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


class Average(Generic[Module]):
    """Moving average of a module's parameters; buffers are copied as they are."""

    def __init__(self, module: Module, decay: float) -> None:
        self.module = copy.deepcopy(module)
        self.module.eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, module: Module, step: int) -> None:
        """Take in the weights after `step` steps. Early on the average is short: nothing is learned yet."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.module.parameters()), list(module.parameters()), 1 - decay)
        for average, current in zip(self.module.buffers(), module.buffers(), strict=True):
            average.copy_(current)
