"""A batch of sequences of any lengths, laid end to end without padding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """values: (S, D) with S = sum(lengths); positions: (S,) each vector's place in its own sequence's time."""

    values: Tensor
    lengths: tuple[int, ...]
    positions: Tensor

    @classmethod
    def consecutive(cls, values: Tensor, lengths: tuple[int, ...]) -> Packed:
        """Sequences whose vectors stand at times 0, 1, 2, ..."""
        positions = torch.cat([torch.arange(length, device=values.device) for length in lengths])
        return cls(values, lengths, positions)

    def with_values(self, values: Tensor) -> Packed:
        """The same sequences in time with other vectors."""
        return replace(self, values=values)

    def slice(self, start: int, stop: int) -> Packed:
        """The vectors start ... stop - 1 and the pieces of sequences that they belong to."""
        lengths, begin = [], 0
        for length in self.lengths:
            inside = min(begin + length, stop) - max(begin, start)
            if inside > 0:
                lengths.append(inside)
            begin += length
        return Packed(self.values[start:stop], tuple(lengths), self.positions[start:stop])
