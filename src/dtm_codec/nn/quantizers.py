"""The bottleneck: single-codebook cosine VQ, and FSQ as a control (paper Section 3.1.3).

Arithmetic is float32 and codes int64 even under autocast: rounding errors gave another codec 5 % wrong tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import QUANTIZED_AT_ONCE, QuantizerConfig

COMMITMENT = 0.25
"""Weight of the encoder's pull to its code; the codebook's pull to the encoder has weight 1."""


@dataclass(frozen=True)
class QuantizerOutput:
    """values: (S, D) quantized; codes: (S,) int64; loss: scalar; latents: (S, d) what was quantized, detached."""

    values: Tensor
    codes: Tensor
    loss: Tensor
    latents: Tensor


class VectorQuantizer(nn.Module):
    """Nearest of one codebook by cosine, in few dimensions, with straight-through gradients.

    Not from `vector-quantize-pytorch`: its cosine codebook is moved by a one-hot matrix of tokens x codes, and cannot
    be learned by gradient as in the paper's lineage (DAC, BigCodec). A training step of 1600 tokens took 332 ms with it
    and 60 ms with this at 16 384 codes, 1417 ms and 423 ms at 65 536 (`benchmarks/quantizer.py`, one thread).

    Codes that nobody chooses receive no gradient. `revive` moves them to where the encoder's vectors are; training
    calls it with counts and vectors of all processes, so that they stay equal on all.
    """

    idle: Tensor
    bypassed: bool = False
    """Let vectors through as they are, while the codebook already learns where they lie (the first steps of training:
    an encoder that is quantized from its first step may never spread over all dimensions)."""

    def __init__(self, dim: int, codebook_size: int, code_dim: int) -> None:
        super().__init__()
        self.project_in = nn.Linear(dim, code_dim)
        self.project_out = nn.Linear(code_dim, dim)
        self.codebook = nn.Parameter(F.normalize(torch.randn(codebook_size, code_dim), dim=-1))
        self.register_buffer("idle", torch.zeros(codebook_size, dtype=torch.int32))

    def forward(self, z2: Tensor) -> QuantizerOutput:
        """z2: (S, D)"""
        with torch.autocast(z2.device.type, enabled=False):
            latents = self._latents(z2)
            codes = self._nearest(latents)
            chosen = F.normalize(F.embedding(codes, self.codebook), dim=-1)
            commitment = (latents - chosen.detach()).square().sum(-1).mean()
            codebook = (latents.detach() - chosen).square().sum(-1).mean()
            values = self.project_out(latents if self.bypassed else latents + (chosen - latents).detach())
        return QuantizerOutput(values.to(z2.dtype), codes, COMMITMENT * commitment + codebook, latents.detach())

    def encode(self, z2: Tensor) -> Tensor:
        """(S, D) -> (S,)"""
        with torch.autocast(z2.device.type, enabled=False):
            return self._nearest(self._latents(z2))

    def decode(self, codes: Tensor) -> Tensor:
        """(S,) -> (S, D)"""
        with torch.autocast(codes.device.type, enabled=False):
            values: Tensor = self.project_out(F.normalize(F.embedding(codes, self.codebook), dim=-1))
        return values

    def _latents(self, z2: Tensor) -> Tensor:
        return F.normalize(self.project_in(z2.float()), dim=-1)

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """What each code stands for before it is projected. -> (V, d)"""
        return F.normalize(self.codebook, dim=-1)

    @torch.no_grad()
    def _nearest(self, latents: Tensor) -> Tensor:
        directions = self.vectors().T
        codes = torch.empty(len(latents), dtype=torch.int64, device=latents.device)
        similarities = latents.new_empty(min(QUANTIZED_AT_ONCE, len(latents)), directions.shape[1])
        for start in range(0, len(latents), QUANTIZED_AT_ONCE):
            rows = latents[start : start + QUANTIZED_AT_ONCE]
            torch.mm(rows, directions, out=similarities[: len(rows)])
            torch.argmax(similarities[: len(rows)], -1, out=codes[start : start + len(rows)])
        return codes

    @torch.no_grad()
    def revive(self, counts: Tensor, latents: Tensor, *, idle_steps: int, seed: int) -> int:
        """Move codes unused for `idle_steps` calls to random `latents`; returns how many. counts: (V,), latents: (M, d)

        The choice depends on the arguments alone: the same on every process that is given the same.
        """
        self.idle += 1
        self.idle[counts > 0] = 0
        dead = (self.idle >= idle_steps).nonzero().squeeze(1)
        if dead.numel() == 0:
            return 0
        generator = torch.Generator().manual_seed(seed)
        picks = torch.randint(latents.shape[0], (dead.numel(),), generator=generator).to(latents.device)
        noise = torch.randn(dead.numel(), latents.shape[1], generator=generator).to(latents.device)
        self.codebook[dead] = F.normalize(latents[picks] + 0.02 * noise, dim=-1)
        self.idle[dead] = 0
        return int(dead.numel())


class FiniteScalarQuantizer(nn.Module):
    """Each of a few bounded dimensions rounded to its levels; nothing to learn but the projections (Mentzer et al.)."""

    levels: Tensor
    place_values: Tensor
    bypassed: bool = False
    """Let vectors through unrounded (the first steps of training)."""

    def __init__(self, dim: int, levels: tuple[int, ...]) -> None:
        super().__init__()
        self.project_in = nn.Linear(dim, len(levels))
        self.project_out = nn.Linear(len(levels), dim)
        self.register_buffer("levels", torch.tensor(levels), persistent=False)
        place_values = torch.tensor((1, *levels[:-1])).cumprod(0)
        self.register_buffer("place_values", place_values, persistent=False)

    def forward(self, z2: Tensor) -> QuantizerOutput:
        """z2: (S, D)"""
        with torch.autocast(z2.device.type, enabled=False):
            bounded = self._bound(self.project_in(z2.float()))
            rounded = bounded if self.bypassed else bounded + (bounded.round() - bounded).detach()
            values = self.project_out(rounded / (self.levels // 2))
        return QuantizerOutput(values.to(z2.dtype), self._codes(bounded), values.new_zeros(()), bounded.detach())

    def encode(self, z2: Tensor) -> Tensor:
        """(S, D) -> (S,)"""
        with torch.autocast(z2.device.type, enabled=False):
            return self._codes(self._bound(self.project_in(z2.float())))

    def decode(self, codes: Tensor) -> Tensor:
        """(S,) -> (S, D)"""
        with torch.autocast(codes.device.type, enabled=False):
            values: Tensor = self.project_out(self._points(codes))
        return values

    def vectors(self) -> Tensor:
        """What each code stands for before it is projected. -> (V, d)"""
        return self._points(torch.arange(int(self.levels.prod()), device=self.levels.device))

    def _points(self, codes: Tensor) -> Tensor:
        half = self.levels // 2
        digits = codes[:, None] // self.place_values % self.levels
        return (digits - half).float() / half

    def _codes(self, bounded: Tensor) -> Tensor:
        return ((bounded.detach().round().long() + self.levels // 2) * self.place_values).sum(-1)

    def _bound(self, x: Tensor) -> Tensor:
        """Squash to (-L/2, L/2) so that rounding gives L levels; an even L is shifted by half a step."""
        reach = (self.levels - 1) * (1 + 1e-3) / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0)
        return torch.tanh(x + torch.atanh(offset / reach)) * reach - offset


def build_quantizer(config: QuantizerConfig, dim: int) -> VectorQuantizer | FiniteScalarQuantizer:
    if config.kind == "fsq":
        return FiniteScalarQuantizer(dim, config.levels)
    return VectorQuantizer(dim, config.codebook_size, config.dim)
