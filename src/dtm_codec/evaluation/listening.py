"""Ratings of a listening test as a table (paper Table 3)."""

from __future__ import annotations

from collections.abc import Sequence

from ..ratings import Rating, analyse
from .tables import Block, Cell, Column, Group


def listening_block(ratings: Sequence[Rating]) -> Block:
    """Mean rating of each system, best first, with the 95 % interval over listeners."""
    results = analyse(ratings, list(dict.fromkeys(r.system for r in ratings)), screening=False)
    trials = len({r.trial for r in ratings})
    judge = f"{len(results.listeners)} listeners, {trials} trials, mean and 95 % bootstrap interval over listeners"
    if len(results.listeners) == 1:
        judge = f"1 listener, {trials} trials, mean and 95 % t interval over ratings"
    rows = []
    for score in sorted(results.scores, key=lambda score: -score.mean):
        low, high = score.interval
        cell = Cell(f"{score.mean:.2f}", f"{low:.1f}–{high:.1f}", judge, score.mean)
        rows.append((Cell(score.system), Cell(str(score.ratings)), cell))
    columns = (Column("System"), Column("Ratings"), Column("MUSHRA", judge, True))
    return Block("Listening test", columns, (Group(None, tuple(rows)),)).marked()
