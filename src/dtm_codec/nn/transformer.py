"""Pre-norm transformer with RMSNorm, qk-norm, RoPE, SwiGLU and LayerScale (paper Section 3.1.4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import AttentionPlan, windowed_attention
from .timeline import Timeline


class Attention(nn.Module):
    """Windowed self-attention with normalised, rotated queries and keys; no biases."""

    def __init__(self, dim: int, heads: int, norm_eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.query_norm = nn.RMSNorm(dim // heads, eps=norm_eps)
        self.key_norm = nn.RMSNorm(dim // heads, eps=norm_eps)
        self.out = nn.Linear(dim, dim, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values. x: (S, D) -> (S, H, d) each"""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(1)
        return rotate(self.query_norm(q), cos, sin), rotate(self.key_norm(k), cos, sin), v

    def forward(self, x: Tensor, plan: AttentionPlan) -> Tensor:
        """x: (S, D) -> (S, D)"""
        q, k, v = self.project(x, plan.cos, plan.sin)
        attended: Tensor = self.out(windowed_attention(q, k, v, plan).flatten(1))
        return attended


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE over the whole head: the two halves are real and imaginary parts. x: (S, H, d); cos, sin: (S, 1, d / 2)"""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    real, imaginary = x.chunk(2, -1)
    return torch.cat([real * cos - imaginary * sin, real * sin + imaginary * cos], -1)


class SwiGLU(nn.Module):
    """Gated feed-forward; no biases."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_and_value = nn.Linear(dim, 2 * hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (S, D) -> (S, D)"""
        gate, value = self.gate_and_value(x).chunk(2, -1)
        out: Tensor = self.out(F.silu(gate) * value)
        return out


class Block(nn.Module):
    """x + scale * attention(norm(x)), then the same with SwiGLU."""

    def __init__(self, dim: int, heads: int, mlp_hidden: int, norm_eps: float, layer_scale: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(dim, eps=norm_eps)
        self.attention = Attention(dim, heads, norm_eps)
        self.attention_scale = nn.Parameter(torch.full((dim,), layer_scale))
        self.mlp_norm = nn.RMSNorm(dim, eps=norm_eps)
        self.mlp = SwiGLU(dim, mlp_hidden)
        self.mlp_scale = nn.Parameter(torch.full((dim,), layer_scale))

    def forward(self, x: Tensor, plan: AttentionPlan) -> Tensor:
        """x: (S, D) -> (S, D)"""
        return self.finish(x, self.attention(self.attention_norm(x), plan))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's output, given what its attention answered. (S, D) each -> (S, D)"""
        x = torch.addcmul(x, self.attention_scale, attended)
        return torch.addcmul(x, self.mlp_scale, self.mlp(self.mlp_norm(x)))


class TransformerStack(nn.Module):
    """Blocks and a final norm: Enc1, Enc2, Dec1 or Dec2."""

    def __init__(
        self,
        layers: int,
        dim: int,
        heads: int,
        mlp_hidden: int,
        *,
        window: int,
        lookahead: int | None = None,
        norm_eps: float,
        rope_base: float,
        layer_scale: float,
    ) -> None:
        super().__init__()
        self.window, self.lookahead, self.rope_base, self.head_dim = window, lookahead, rope_base, dim // heads
        self.blocks = nn.ModuleList(Block(dim, heads, mlp_hidden, norm_eps, layer_scale) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps=norm_eps)

    def forward(self, x: Tensor, timeline: Timeline) -> Tensor:
        """x: (S, D) -> (S, D)"""
        # Whole blocks of attention, and the residual stream in one precision: a compiled block needs no second form.
        filled = timeline.filled(self.window)
        plan = AttentionPlan.build(filled, self.window, self.head_dim, self.rope_base, self.lookahead)
        steps = x.shape[0]
        x = F.pad(x.to(self.norm.weight.dtype), (0, 0, 0, filled.positions.shape[0] - steps))
        for block in self.blocks:
            x = block(x, plan)
        normed: Tensor = self.norm(x)[:steps]
        return normed
