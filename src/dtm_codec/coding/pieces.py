"""Rows that come in blocks through a stack in pieces: memory for one piece, whatever the length.

Attention has a finite reach, so a piece computed with its reach around it is exact. The window that holds a piece and
its surroundings is allocated once. What a caller keeps for long it should copy into something that it allocated before:
a small result that stays alive between large ones that come and go keeps the heap from using their place again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from ..backends.base import Floats, Positions


class Rows(NamedTuple):
    """Consecutive rows of sequences laid end to end."""

    values: Floats
    """(S, D)"""
    positions: Positions
    """(S,)"""


StackCall: TypeAlias = Callable[[Floats, Positions], Floats]
"""A stack: (S, D), (S,) -> (S, D)"""


def in_pieces(stack: StackCall, reach: int, blocks: Iterable[Rows], piece: int, before: int = 0) -> Iterator[Rows]:
    """What `stack` makes of rows that come in blocks of any size. It comes in pieces of `piece` rows; the last may be
    longer by the reach. The first `before` rows are only looked at."""
    window: Rows | None = None
    filled = 0
    for block in blocks:
        if window is None:
            room = piece + 2 * reach
            window = Rows(np.empty((room, block.values.shape[1]), np.float32), np.empty(room, np.int64))
        taken = 0
        while taken < len(block.positions):
            count = min(len(block.positions) - taken, before + piece + reach - filled)
            window.values[filled : filled + count] = block.values[taken : taken + count]
            window.positions[filled : filled + count] = block.positions[taken : taken + count]
            taken, filled = taken + count, filled + count
            if filled == before + piece + reach:
                yield _output(stack, window, before, before + piece, filled)
                dropped = max(0, before + piece - reach)
                for held in (window.values, window.positions):
                    held[: filled - dropped] = held[dropped:filled].copy()
                before, filled = before + piece - dropped, filled - dropped
    if window is not None and filled > before:
        yield _output(stack, window, before, filled, filled)


def _output(stack: StackCall, window: Rows, start: int, stop: int, filled: int) -> Rows:
    positions = window.positions[:filled].copy()
    return Rows(stack(window.values[:filled], positions)[start:stop], positions[start:stop])


class RowQueue:
    """Rows that come in blocks and are taken in other amounts."""

    def __init__(self, blocks: Iterator[Rows]) -> None:
        self._blocks = blocks
        self._held: Floats | None = None

    def take(self, count: int) -> Floats:
        """The next `count` rows. -> (count, D)"""
        parts = [] if self._held is None else [self._held]
        while not parts or sum(map(len, parts)) < count:
            parts.append(next(self._blocks).values)
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self._held = rows[count:]
        return rows[:count]


def starts_of(positions: Positions) -> list[int]:
    """Where sequences begin, apart from the first, which may have begun before."""
    return [int(start) + 1 for start in np.flatnonzero(positions[1:] == 0)]
