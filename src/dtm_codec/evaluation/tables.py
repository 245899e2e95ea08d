"""Tables as data. A column belongs to one judge: a cell of another judge cannot get into it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .summary import Bps, MetricInfo, Summary, SystemSummary

Mark = Literal["best", "second"]
MARKS: tuple[Mark, ...] = ("best", "second")
DASH = "–"
NOT_CODED = "Not coded"
"""Title of the rows that stand beside codecs."""


@dataclass(frozen=True)
class Column:
    heading: str
    judge: str | None = None
    """Who decided the numbers below; None for counted or given ones."""
    higher_is_better: bool | None = None
    """None where neither is better."""

    @property
    def title(self) -> str:
        """Heading with an arrow that says whether more or less is better."""
        arrow = {True: " ↑", False: " ↓", None: ""}[self.higher_is_better]
        return self.heading + arrow


@dataclass(frozen=True)
class Cell:
    text: str = DASH
    detail: str | None = None
    """Interval or change, set smaller."""
    judge: str | None = None
    value: float | None = None
    mark: Mark | None = None


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Group:
    """Rows that are compared with each other."""

    title: str | None
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Block:
    title: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    reference: bool = False
    """From the paper, not measured here."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for group in self.groups:
            for row in group.rows:
                if len(row) != len(self.columns):
                    raise ValueError(f"{self.title!r}: {len(row)} cells under {len(self.columns)} columns")
                for cell, column in zip(row, self.columns, strict=True):
                    if cell.text != DASH and cell.judge != column.judge:
                        raise ValueError(f"{self.title!r}: judge {cell.judge!r} in a column of {column.judge!r}")

    @property
    def judges(self) -> list[str]:
        """Footnotes: the judges in order of their columns."""
        return list(dict.fromkeys(column.judge for column in self.columns if column.judge))

    def marked(self) -> Block:
        """The same, with the best and second best of each group marked, as the paper does."""
        groups = []
        for group in self.groups:
            rows = [list(row) for row in group.rows]
            for index, column in enumerate(self.columns):
                values = sorted({value for row in rows if (value := row[index].value) is not None})
                if column.higher_is_better is None or len(values) < 2:
                    continue
                ranked = values[::-1] if column.higher_is_better else values
                for row in rows:
                    for mark, value in zip(MARKS, ranked, strict=False):
                        if row[index].value == value:
                            row[index] = replace(row[index], mark=mark)
            groups.append(Group(group.title, tuple(map(tuple, rows))))
        return replace(self, groups=tuple(groups))


@dataclass(frozen=True)
class Entry:
    """What a row is made from: its leading cells, and the system's results, if there are any."""

    leading: tuple[str, ...]
    system: SystemSummary | None
    extras: tuple[Cell, ...] = ()
    note: str = ""
    """Why there are no results, or what is odd about them."""
    changes: dict[str, str] | None = None
    """Relative change by metric, in place of the interval."""


BITS = ("Content", "Position", "Total bps", "Written")


def bits_cells(bps: Bps | None) -> list[Cell]:
    """Content, position, total and written bits a second."""
    values = (bps.content, bps.position, bps.total, bps.written) if bps else (None,) * 4
    return [Cell() if v is None else Cell(f"{v:.0f}", value=v) for v in values]


def metric_columns(infos: Iterable[dict[str, MetricInfo]]) -> dict[tuple[str, str], Column]:
    """One column per metric and judge: runs of two judges give two columns."""
    columns: dict[tuple[str, str], Column] = {}
    for info in infos:
        for name, metric in info.items():
            heading = metric.label + (f" ({metric.unit})" if metric.unit else "")
            columns.setdefault((name, metric.judge), Column(heading, metric.judge, metric.higher_is_better))
    return columns


def metric_cell(system: SystemSummary | None, name: str, judge: str, decimals: int, change: str | None = None) -> Cell:
    """Mean and interval (or change) of one metric, if this judge gave one."""
    estimate = system.metrics.get(name) if system else None
    if estimate is None or estimate.judge != judge:
        return Cell()
    interval = f"{estimate.low:.{decimals}f}–{estimate.high:.{decimals}f}"
    return Cell(f"{estimate.mean:.{decimals}f}", change or interval, judge, estimate.mean)


def systems_block(
    title: str,
    leading: Sequence[str],
    groups: Sequence[tuple[str | None, Sequence[Entry]]],
    summaries: Sequence[Summary],
    extras: Sequence[Column] = (),
    notes: Sequence[str] = (),
    marks: bool = True,
) -> Block:
    """Systems as rows: leading cells, bits, extra columns, then one column per metric and judge."""
    infos = [summary.metrics for summary in summaries]
    shown = {
        (name, estimate.judge)
        for _, entries in groups
        for entry in entries
        if entry.system
        for name, estimate in entry.system.metrics.items()
    }
    metrics = {key: column for key, column in metric_columns(infos).items() if key in shown}
    decimals = {name: metric.decimals for info in infos for name, metric in info.items()}
    columns = (*map(Column, leading), *map(Column, BITS), *extras, *metrics.values())

    def row(entry: Entry) -> Row:
        changes = entry.changes or {}
        return (
            *(Cell(text) for text in entry.leading),
            *bits_cells(entry.system.bps if entry.system else None),
            *(entry.extras or (Cell(),) * len(extras)),
            *(metric_cell(entry.system, name, judge, decimals[name], changes.get(name)) for name, judge in metrics),
        )

    below = [f"{' '.join(e.leading)}: {e.note}" for _, entries in groups for e in entries if e.note]
    rows = tuple(Group(heading, tuple(map(row, entries))) for heading, entries in groups)
    block = Block(title, columns, rows, notes=(*notes, *below))
    return block.marked() if marks else block


def grouped(entries: Iterable[tuple[str | None, Entry]]) -> list[tuple[str | None, list[Entry]]]:
    """Entries under common titles, in order of first appearance."""
    groups: dict[str | None, list[Entry]] = {}
    for title, entry in entries:
        groups.setdefault(title, []).append(entry)
    return list(groups.items())
