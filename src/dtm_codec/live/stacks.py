"""A transformer stack that is given its input bit by bit, and answers as it would to the whole of it.

Each block keeps the keys and values of one window, and the steps that still wait for what they may look ahead to. A
step is answered when no key that it would see can come any more: its look-ahead has passed, or its window is full.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn.attention import rotary_angles
from ..nn.transformer import Block, TransformerStack


class Steps(NamedTuple):
    """Steps that have become known since the last call."""

    values: Tensor
    """(S, D)"""
    positions: Tensor
    """(S,) times of the steps, ascending."""
    frontier: float
    """Every step before this time is known; infinite once the end is."""


class StackStream:
    """A stack's state."""

    def __init__(self, stack: TransformerStack) -> None:
        self._norm = stack.norm
        self._blocks = [_BlockStream(block, stack) for block in stack.blocks if isinstance(block, Block)]

    def push(self, steps: Steps) -> Steps:
        """The answers that are ready."""
        for block in self._blocks:
            steps = block.push(steps)
        return steps._replace(values=self._norm(steps.values))


class _BlockStream:
    def __init__(self, block: Block, stack: TransformerStack) -> None:
        self._block = block
        self._stack = stack
        weight = block.attention.qkv.weight
        heads, head_dim = block.attention.heads, stack.head_dim
        self._inputs = weight.new_zeros(0, heads * head_dim)  # of steps that wait for an answer
        self._queries = weight.new_zeros(0, heads, head_dim)
        self._keys = self._values = self._queries  # of these, and of a window before them
        self._positions = torch.zeros(0, dtype=torch.long, device=weight.device)

    def push(self, steps: Steps) -> Steps:
        attention = self._block.attention
        if steps.values.shape[0]:
            angles = rotary_angles(steps.positions, self._stack.head_dim, self._stack.rope_base)
            q, k, v = attention.project(self._block.attention_norm(steps.values), *angles)
            self._inputs = torch.cat([self._inputs, steps.values])
            self._queries = torch.cat([self._queries, q])
            self._keys, self._values = torch.cat([self._keys, k]), torch.cat([self._values, v])
            self._positions = torch.cat([self._positions, steps.positions])
        ready = self._ready(steps.frontier)
        answered = self._inputs[:ready]
        first = self._positions.shape[0] - self._inputs.shape[0]  # among the keys, of the steps that wait
        positions = self._positions[first : first + ready]
        if ready:
            q, k, v = (x.transpose(0, 1)[None] for x in (self._queries[:ready], self._keys, self._values))
            attended = F.scaled_dot_product_attention(q, k, v, self._seen(first, positions))  # (1, H, ready, d)
            answered = self._block.finish(answered, attention.out(attended[0].transpose(0, 1).flatten(1)))
            self._forget(first, ready)
        waiting = self._inputs.shape[0]
        return Steps(answered, positions, float(self._positions[-waiting]) if waiting else steps.frontier)

    def _ready(self, frontier: float) -> int:
        """How many of the steps that wait can be answered."""
        waiting = self._inputs.shape[0]
        if math.isinf(frontier):
            return waiting
        ready = max(0, waiting - self._stack.window)
        if waiting and self._stack.lookahead is not None:
            in_sight = self._positions[-waiting:] + self._stack.lookahead < frontier
            ready = max(ready, int(in_sight.sum()))
        return ready

    def _seen(self, first: int, positions: Tensor) -> Tensor:
        """Which keys each answered step sees. -> (ready, keys) bool"""
        device = positions.device
        key = torch.arange(self._positions.shape[0], device=device)
        query = torch.arange(first, first + positions.shape[0], device=device)
        seen = (query[:, None] - key).abs() <= self._stack.window
        if self._stack.lookahead is not None:
            seen &= self._positions - positions[:, None] <= self._stack.lookahead
        return seen

    def _forget(self, first: int, ready: int) -> None:
        self._inputs, self._queries = self._inputs[ready:].clone(), self._queries[ready:].clone()
        old = max(0, first + ready - self._stack.window)
        self._keys, self._values, self._positions = (
            x[old:].clone() for x in (self._keys, self._values, self._positions)
        )
