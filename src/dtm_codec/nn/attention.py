"""Sliding-window attention over packed sequences, with memory linear in length (paper Section 3.1.4).

The packed axis is cut into blocks of `window` steps. A block's queries see their own block and the two beside
it, which holds every key within `window` steps; what is farther away or of another sequence is masked by a bias
that is built once for all layers. No mask of N x N, no padding of short sequences.

With a `lookahead`, a query also sees no key whose position is more than that ahead of its own. Positions are times, so
that the kept steps of Stage 2 wait for a time that is known, however far apart they are.

`BlockAttention` has a backward of its own. On CPU, PyTorch's fused attention spends most of a training step in
its backward when it is given a mask; four batched products and one pass of elementwise work take less than half
that time (`make bench-train` shows both).

On CUDA, with the package flash-attn and half precision, its variable-length kernel does the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .timeline import Timeline

try:  # CUDA only; the blocked form below does the same elsewhere
    from flash_attn import flash_attn_varlen_func
except ImportError:
    flash_attn_varlen_func = None


@dataclass(frozen=True)
class AttentionPlan:
    """What all layers of a stack share: who sees whom, and the rotary angles."""

    lengths: tuple[int, ...]
    window: int
    lookahead: int | None
    bias: Tensor
    """(blocks, 1, window, 3 window): 0 where a key is seen, -inf elsewhere."""
    cos: Tensor
    """(S, 1, head_dim / 2)"""
    sin: Tensor

    @classmethod
    def build(
        cls, timeline: Timeline, window: int, head_dim: int, rope_base: float, lookahead: int | None = None
    ) -> AttentionPlan:
        """The plan for sequences that fill whole blocks (`Timeline.filled`)."""
        bias = _block_bias(timeline, window, lookahead)
        return cls(timeline.lengths, window, lookahead, bias, *rotary_angles(timeline.positions, head_dim, rope_base))


def rotary_angles(positions: Tensor, head_dim: int, rope_base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of RoPE, (S, 1, head_dim / 2) each. Angles are float64 until they are wrapped: late in hours of
    speech, float32 would blur them, and the same sounds would get other tokens there. positions: (S,)"""
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float64) / head_dim
    angles = positions[:, None] * rope_base**-exponents  # (S, head_dim / 2)
    angles = (angles % (2 * math.pi)).float()
    return angles.cos()[:, None], angles.sin()[:, None]


def _block_bias(timeline: Timeline, window: int, lookahead: int | None) -> Tensor:
    lengths, device = timeline.lengths, timeline.positions.device
    sequence = torch.repeat_interleave(
        torch.arange(len(lengths), device=device), torch.tensor(lengths, device=device, dtype=torch.long)
    )
    sequence, keys = _with_neighbours(sequence, window, outside=-1)  # no sequence, so that none sees it
    query_step = torch.arange(window, device=device)[:, None]
    key_step = torch.arange(-window, 2 * window, device=device)[None]
    seen = ((query_step - key_step).abs() <= window) & (sequence[:, :, None] == keys[:, None])
    if lookahead is not None:
        position, key_position = _with_neighbours(timeline.positions, window, outside=0)
        seen &= key_position[:, None] - position[:, :, None] <= lookahead
    bias = torch.zeros(seen.shape, device=device).masked_fill_(~seen, float("-inf"))
    return bias[:, None]


def _with_neighbours(x: Tensor, window: int, outside: int) -> tuple[Tensor, Tensor]:
    """What queries and keys of each block have of a number per step. (S,) -> (blocks, window), (blocks, 3 window)"""
    blocked = x.view(-1, window)
    around = F.pad(blocked, (0, 0, 1, 1), value=outside)
    return blocked, torch.cat([around[:-2], around[1:-1], around[2:]], dim=1)


def windowed_attention(q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan) -> Tensor:
    """Attention of each step to those within the window in its own sequence. q, k, v: (S, H, d) -> (S, H, d)

    S: whole blocks, as the plan has them
    """
    q, k = q.to(v.dtype), k.to(v.dtype)  # autocast on CUDA leaves what is normalised in 32 bits
    half = q.dtype in (torch.float16, torch.bfloat16)
    by_steps = plan.lookahead in (None, 0)  # flash-attn counts steps, not positions; it has no other look-ahead
    if flash_attn_varlen_func is not None and q.is_cuda and half and by_steps:
        ends = torch.tensor((0, *plan.lengths), device=q.device, dtype=torch.int32).cumsum(0, dtype=torch.int32)
        longest, reach = max(plan.lengths), (plan.window, plan.window if plan.lookahead is None else 0)
        attended: Tensor = flash_attn_varlen_func(q, k, v, ends, ends, longest, longest, window_size=reach)
        return attended
    window = plan.window
    k, v = (F.pad(x, (0, 0, 0, 0, window, window)) for x in (k, v))
    if torch.is_grad_enabled() and q.requires_grad:
        attended = BlockAttention.apply(q, k, v, plan.bias)  # type: ignore[no-untyped-call]
        return attended
    keys, values = _neighbourhoods(k, window), _neighbourhoods(v, window)
    bias = plan.bias.to(q.dtype)
    return _unblock(F.scaled_dot_product_attention(_blocks(q, window), keys, values, attn_mask=bias))


def _blocks(x: Tensor, window: int) -> Tensor:
    """(S, H, d) -> (blocks, H, window, d)"""
    return x.view(-1, window, *x.shape[1:]).transpose(1, 2)


def _unblock(x: Tensor) -> Tensor:
    """(blocks, H, window, d) -> (S, H, d)"""
    return x.transpose(1, 2).flatten(0, 1)


def _neighbourhoods(x: Tensor, window: int) -> Tensor:
    """Each block with the ones before and after it, a view. (S + 2 window, H, d) -> (blocks, H, 3 window, d)"""
    return x.unfold(0, 3 * window, window).transpose(2, 3)


class BlockAttention(torch.autograd.Function):
    """Softmax attention of blocks to their neighbourhoods, backward by hand.

    q: (S, H, d); k, v: (S + 2 window, H, d), a block of zeros at each end -> (S, H, d)
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        window = bias.shape[2]
        queries = _blocks(q, window) * q.shape[-1] ** -0.5
        keys, values = (_neighbourhoods(x, window).contiguous() for x in (k, v))
        weights = (queries @ keys.transpose(2, 3)).add_(bias)
        # every query sees itself, so every row has a finite maximum
        weights = torch.softmax(weights, -1, dtype=weights.dtype)  # (blocks, H, window, 3 window)
        attended = weights @ values
        ctx.save_for_backward(queries, keys, values, weights, attended)
        return _unblock(attended)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, weights, attended = ctx.saved_tensors
        window, width = queries.shape[2:]
        grad = _blocks(grads[0], window).contiguous()
        grad_values = weights.transpose(2, 3) @ grad
        along = (grad * attended).sum(-1, keepdim=True)  # the softmax's pull back to its row sum
        grad_scores = (grad @ values.transpose(2, 3)).sub_(along).mul_(weights)
        grad_queries = (grad_scores @ keys).mul_(width**-0.5)
        grad_keys = grad_scores.transpose(2, 3) @ queries
        return _unblock(grad_queries), _fold(grad_keys), _fold(grad_values), None


def _fold(x: Tensor) -> Tensor:
    """Sum what each step received as a key of three blocks: the transpose of `_neighbourhoods`."""
    pieces = x.chunk(3, dim=2)  # (blocks, H, window, d) each: for the block before, the own, the one after
    total = sum(F.pad(piece, (0, 0, 0, 0, 0, 0, i, 2 - i)) for i, piece in enumerate(pieces))
    assert isinstance(total, Tensor)
    return _unblock(total)
