"""Rows that come in blocks through a stack in pieces: memory for one piece, whatever the length.

Attention has a finite reach, so a piece computed with its reach around it is exact. The window that holds a piece and
its surroundings is allocated once. What a caller keeps for long it should copy into something that it allocated before:
a small result that stays alive between large ones that come and go keeps the heap from using their place again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .timeline import Timeline
from .transformer import TransformerStack


class Rows(NamedTuple):
    """Consecutive rows of sequences laid end to end."""

    values: Tensor
    """(S, D)"""
    positions: Tensor
    """(S,) each row's place in the time of its own sequence; 0 begins a new one."""


def in_pieces(stack: TransformerStack, blocks: Iterable[Rows], piece: int, before: int = 0) -> Iterator[Rows]:
    """What `stack` makes of rows that come in blocks of any size. It comes in pieces of `piece` rows; the last may be
    longer by the reach. The first `before` rows are only looked at."""
    reach = stack.reach
    window: Rows | None = None
    filled = 0
    for block in blocks:
        if window is None:
            room = piece + 2 * reach
            window = Rows(
                block.values.new_empty(room, block.values.shape[1]), torch.empty_like(block.positions[:1]).repeat(room)
            )
        taken = 0
        while taken < block.positions.numel():
            count = min(block.positions.numel() - taken, before + piece + reach - filled)
            for held, new in zip(window, block, strict=True):
                held[filled : filled + count] = new[taken : taken + count]
            taken, filled = taken + count, filled + count
            if filled == before + piece + reach:
                yield _output(stack, window, before, before + piece, filled)
                dropped = max(0, before + piece - reach)
                for held in window:
                    held[: filled - dropped] = held[dropped:filled].clone()
                before, filled = before + piece - dropped, filled - dropped
    if window is not None and filled > before:
        yield _output(stack, window, before, filled, filled)


def _output(stack: TransformerStack, window: Rows, start: int, stop: int, filled: int) -> Rows:
    positions = window.positions[:filled]
    values = stack(window.values[:filled], Timeline.of(positions))
    return Rows(values[start:stop], positions[start:stop].clone())


class RowQueue:
    """Rows that come in blocks and are taken in other amounts."""

    def __init__(self, blocks: Iterator[Rows]) -> None:
        self._blocks = blocks
        self._held: Tensor | None = None

    def take(self, count: int) -> Tensor:
        """The next `count` rows. -> (count, D)"""
        parts = [] if self._held is None else [self._held]
        while not parts or sum(len(part) for part in parts) < count:
            parts.append(next(self._blocks).values)
        rows = parts[0] if len(parts) == 1 else torch.cat(parts)
        self._held = rows[count:]
        return rows[:count]
