"""Ratings of a listening test (paper Table 3), from the CSV or JSON that `dtm-codec listening results` writes."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DataError
from .statistics import Estimate, weighted_mean
from .tables import Block, Cell, Column, Group

FIELDS = ("listener", "trial", "system", "rating")


@dataclass(frozen=True)
class Rating:
    """One slider."""

    listener: str
    trial: str
    system: str
    rating: float


def read_ratings(path: Path) -> list[Rating]:
    """Rows with listener, trial, system and rating (0 ... 100), as CSV with a heading or a JSON list of objects."""
    try:
        text = path.read_text(encoding="utf-8")
        rows = json.loads(text) if path.suffix == ".json" else list(csv.DictReader(text.splitlines()))
        ratings = [Rating(str(r["listener"]), str(r["trial"]), str(r["system"]), float(r["rating"])) for r in rows]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{path} holds no ratings; allowed: CSV or JSON with the fields {', '.join(FIELDS)}") from None
    if not ratings or any(not 0 <= r.rating <= 100 for r in ratings):
        raise DataError(f"{path}: ratings must be there, and within 0 ... 100")
    return ratings


def listening_block(ratings: list[Rating]) -> Block:
    """Mean rating of each system, best first, with the 95 % interval over ratings."""
    estimates: dict[str, Estimate] = {}
    for system in dict.fromkeys(r.system for r in ratings):
        values = np.array([r.rating for r in ratings if r.system == system])
        estimates[system] = weighted_mean(values, np.ones_like(values))
    listeners, trials = len({r.listener for r in ratings}), len({r.trial for r in ratings})
    judge = f"{listeners} listeners, {trials} trials, mean and 95 % bootstrap interval over ratings"
    rows = tuple(
        (Cell(system), Cell(str(e.n)), Cell(f"{e.mean:.2f}", f"{e.low:.1f}–{e.high:.1f}", judge, e.mean))
        for system, e in sorted(estimates.items(), key=lambda item: -item[1].mean)
    )
    columns = (Column("System"), Column("Ratings"), Column("MUSHRA", judge, True))
    return Block("Listening test", columns, (Group(None, rows),)).marked()
