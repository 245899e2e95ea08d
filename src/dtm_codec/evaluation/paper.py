"""The paper's tables, as printed (`paper.json`), to stand beside ours as reference rows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from .tables import Block, Cell, Column, Group

_LOWER_IS_BETTER = {"WER", "RTF", "NMSE", "Share (%)"}


@dataclass(frozen=True)
class PaperTable:
    """One table: cells are the printed strings, None where the paper has a dash."""

    label: str
    """LaTeX label in the paper's source."""
    title: str
    columns: tuple[str, ...]
    groups: tuple[tuple[str | None, tuple[tuple[str | None, ...], ...]], ...]
    """(title, rows) of each part."""

    @property
    def rows(self) -> list[tuple[str | None, ...]]:
        return [row for _, rows in self.groups for row in rows]


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))
    return data


def judges() -> dict[str, str]:
    return dict(_data()["judges"])


@cache
def tables() -> dict[str, PaperTable]:
    return {
        name: PaperTable(
            table["label"],
            table["title"],
            tuple(table["columns"]),
            tuple((block["title"], tuple(map(tuple, block["rows"]))) for block in table["blocks"]),
        )
        for name, table in _data()["tables"].items()
    }


def reference_block(name: str) -> Block:
    """A table of the paper, marked as such and with its own judges."""
    table, known = tables()[name], judges()
    columns = tuple(
        Column(heading, known.get(heading), None if heading not in known else heading not in _LOWER_IS_BETTER)
        for heading in table.columns
    )
    groups = tuple(
        Group(
            title,
            tuple(
                tuple(Cell(text or "–", judge=c.judge) for text, c in zip(row, columns, strict=True)) for row in rows
            ),
        )
        for title, rows in table.groups
    )
    return Block(f"Paper: {table.title}", columns, groups, reference=True)


def curves(heading: str) -> dict[str, list[tuple[float, float]]]:
    """(total bps, value) by system of the paper's rate-distortion figure, from its main and its FFR table."""
    points: dict[str, list[tuple[float, float]]] = {}
    main, pairs = tables()["main"], tables()["ffr-vfr"]
    for row in main.rows:
        cells = dict(zip(main.columns, row, strict=True))
        if cells["Total bps"] and cells[heading]:
            series = re.split(r"[@ (]", str(cells["Model"]))[0]
            series = "DTM-Codec VFR" if series == "DTM-Codec" else series
            points.setdefault(series, []).append((float(cells["Total bps"]), float(str(cells[heading]))))
    for row in pairs.rows if heading in pairs.columns else []:
        cells = dict(zip(pairs.columns, row, strict=True))
        points.setdefault("DTM-Codec FFR", []).append(
            (float(str(cells["Total bps"])), float(str(cells[heading]).partition("→")[0]))
        )
    return {series: sorted(values) for series, values in points.items()}
