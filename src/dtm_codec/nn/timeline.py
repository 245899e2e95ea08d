"""Where vectors stand in time: sequences of any lengths, laid end to end without padding."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Timeline:
    lengths: tuple[int, ...]
    """Steps of each sequence, S in all."""
    positions: Tensor
    """(S,) each step's place in the time of its own sequence."""

    @classmethod
    def consecutive(cls, lengths: tuple[int, ...], device: torch.device) -> Timeline:
        """Steps at times 0, 1, 2, ... of each sequence."""
        return cls(lengths, torch.cat([torch.arange(length, device=device) for length in lengths]))

    @classmethod
    def of(cls, positions: Tensor) -> Timeline:
        """Sequences of which each begins at position 0; the first may have begun before. positions: (S,)"""
        starts = (positions[1:] == 0).nonzero().squeeze(1).tolist()
        edges = [0, *(start + 1 for start in starts), positions.numel()]
        return cls(tuple(stop - start for start, stop in pairwise(edges)), positions)

    def kept(self, mask: Tensor) -> Timeline:
        """The kept steps alone, at the times that they had. mask: (S,)"""
        lengths = tuple(int(own.sum()) for own in torch.split(mask, list(self.lengths)))
        return Timeline(lengths, self.positions[mask])

    def filled(self, multiple: int) -> Timeline:
        """The same sequences, and one more that fills the steps up to a multiple."""
        tail = -self.positions.shape[0] % multiple
        if not tail:
            return self
        filling = torch.arange(tail, device=self.positions.device)
        return Timeline((*self.lengths, tail), torch.cat([self.positions, filling]))
