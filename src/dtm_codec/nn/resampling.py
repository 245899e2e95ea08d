"""Dynamic Token Masking and its alternatives: N Stage-1 vectors to K kept ones and back (paper Section 3.2, Table 4).

Downsamplers take packed vectors and a keep mask; upsamplers put K vectors back on the timeline of N. A segment is
a kept step and the masked steps after it; the first step of every sequence is kept, so no segment spans two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..config import Downsampler, Upsampler


def segment_of(mask: Tensor) -> Tensor:
    """Rank of the segment that each step belongs to, pi(t) - 1 of Eq. 3. (N,) -> (N,)"""
    return mask.cumsum(0) - 1


class Pack(nn.Module):
    """Keep the chosen vectors as they are (Eq. 2)."""

    whole_segments = False

    def forward(self, z1: Tensor, mask: Tensor) -> Tensor:
        """z1: (N, D), mask: (N,) -> (K, D)"""
        return z1.index_select(0, mask.nonzero().squeeze(1))


class Average(nn.Module):
    """The mean of each segment, as CodecSlime and FlexiCodec merge."""

    whole_segments = True
    """A piece must not end within a segment."""

    def forward(self, z1: Tensor, mask: Tensor) -> Tensor:
        """z1: (N, D), mask: (N,) -> (K, D)"""
        segment = segment_of(mask)
        spans = torch.bincount(segment)
        sums = z1.new_zeros(spans.shape[0], z1.shape[1]).index_add(0, segment, z1)
        return sums / spans[:, None].to(z1.dtype)


class MaskFill(nn.Module):
    """Kept vectors in their places, one learned <MASK> vector everywhere else (Eq. 3)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(dim))
        nn.init.trunc_normal_(self.embedding, std=0.02)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        """h: (K, D), mask: (N,) -> (N, D)"""
        filled = self.embedding.to(h.dtype).expand(mask.shape[0], -1)
        return filled.index_copy(0, mask.nonzero().squeeze(1), h)


class Repeat(nn.Module):
    """Each kept vector over its whole segment."""

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        """h: (K, D), mask: (N,) -> (N, D)"""
        return h.index_select(0, segment_of(mask))


class ConvDown(nn.Module):
    """A strided convolution with kernel = stride, the fixed-rate control. Steps past a sequence's end count as zero."""

    whole_segments = True

    def __init__(self, dim: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.project = nn.Linear(stride * dim, dim)

    def forward(self, z1: Tensor, mask: Tensor) -> Tensor:
        """z1: (N, D), mask: (N,) every stride-th step -> (K, D)"""
        windows = z1.new_zeros(int(mask.sum()), self.stride, z1.shape[1])
        windows = windows.index_put((segment_of(mask), _offset_in_segment(mask)), z1)
        projected: Tensor = self.project(windows.flatten(1))
        return projected


class ConvUp(nn.Module):
    """The transposed convolution of `ConvDown`."""

    def __init__(self, dim: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.project = nn.Linear(dim, stride * dim)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        """h: (K, D), mask: (N,) every stride-th step -> (N, D)"""
        windows = self.project(h).unflatten(1, (self.stride, -1))
        placed: Tensor = windows[segment_of(mask), _offset_in_segment(mask)]
        return placed


def _offset_in_segment(mask: Tensor) -> Tensor:
    """Steps since the last kept one. (N,) -> (N,)"""
    return torch.arange(mask.shape[0], device=mask.device) - mask.nonzero().squeeze(1)[segment_of(mask)]


def build_downsampler(kind: Downsampler, dim: int, stride: int) -> nn.Module:
    if kind == "conv":
        return ConvDown(dim, stride)
    return Pack() if kind == "pack" else Average()


def build_upsampler(kind: Upsampler, dim: int, stride: int) -> nn.Module:
    if kind == "conv":
        return ConvUp(dim, stride)
    return MaskFill(dim) if kind == "mask" else Repeat()
