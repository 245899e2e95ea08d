"""Two systems on the same utterances: both values, the relative change and its paired interval, as in the paper's
Table 2. What is easy or hard for both drops out, so that a difference shows that the intervals of each would hide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ..metrics.intervals import Estimate, over_runs, relative_change, weighted_mean
from ..system.optional import import_optional
from .summary import UTTERANCES, Summary
from .tables import Block, Cell, Column, Group, metric_columns


@dataclass(frozen=True)
class MetricChange:
    """One metric, from the first system to the second; a positive change is better, whichever way the metric points."""

    before: float
    after: float
    percent: Estimate

    @property
    def text(self) -> str:
        if not math.isfinite(self.percent.mean):
            return "from 0"
        return f"{self.percent.mean:+.1f}%, {self.percent.low:+.1f} … {self.percent.high:+.1f}"


@dataclass(frozen=True)
class Change:
    before_bps: float | None
    after_bps: float | None
    by_metric: dict[str, MetricChange]


def changes(run: Path, summary: Summary, before: str, after: str) -> Change | None:
    """Over the utterances that both systems have in this run; None if there are none."""
    table = import_optional("pyarrow.parquet").read_table(run / UTTERANCES)
    found = {}
    for name, info in summary.metrics.items():
        values: dict[str, dict[str, tuple[float, float]]] = {before: {}, after: {}}
        for row in table.select(["system", "utterance", name, f"{name}.weight"]).to_pylist():
            if row["system"] in values and row[name] is not None:
                values[row["system"]][row["utterance"]] = (row[name], row[f"{name}.weight"])
        shared = [utterance for utterance in values[before] if utterance in values[after]]
        if shared:
            old, new = ([values[system][u][0] for u in shared] for system in (before, after))
            weights = [values[before][u][1] for u in shared]
            percent = relative_change(old, new, weights, 1 if info.higher_is_better else -1)
            found[name] = MetricChange(weighted_mean(old, weights).mean, weighted_mean(new, weights).mean, percent)
    return Change(_total_bps(summary, before), _total_bps(summary, after), found) if found else None


def over_seeds(of_seeds: Sequence[Change]) -> Change:
    """The mean change of pairs of models that differ in their seeds alone, with an interval over these."""
    first = of_seeds[0]
    by_metric = {}
    for name in first.by_metric:
        pairs = [change.by_metric[name] for change in of_seeds if name in change.by_metric]
        if len(pairs) > 1:
            percent = over_runs([pair.percent.mean for pair in pairs])
            before, after = (fmean(values) for values in zip(*((p.before, p.after) for p in pairs), strict=True))
            by_metric[name] = MetricChange(before, after, percent)
    return Change(first.before_bps, first.after_bps, by_metric)


def _total_bps(summary: Summary, name: str) -> float | None:
    bps = summary.systems[name].bps
    return None if bps is None else bps.total


def pairs_block(
    title: str,
    headings: Sequence[str],
    rows: Sequence[tuple[tuple[str, ...], Change | None, str]],
    summary: Summary,
    pair: str,
) -> Block:
    """rows: leading cells, the change, and why there is none; pair: what the two are"""
    columns = {name: column for (name, _), column in metric_columns([summary.metrics]).items()}

    def cells(change: Change | None) -> tuple[Cell, ...]:
        if change is None:
            return (Cell(),) * (1 + len(columns))
        made = [Cell("→".join("?" if bps is None else f"{bps:.0f}" for bps in (change.before_bps, change.after_bps)))]
        for name, column in columns.items():
            metric = change.by_metric.get(name)
            decimals = summary.metrics[name].decimals
            text = f"{metric.before:.{decimals}f}→{metric.after:.{decimals}f}" if metric else None
            made.append(Cell(text, metric.text, column.judge) if metric and text else Cell())
        return tuple(made)

    body = tuple((*map(Cell, leading), *cells(change)) for leading, change, _ in rows)
    notes = [f"Each cell: {pair}, change in per cent (+ is better) with its 95 % interval, resampled in pairs"]
    notes += [f"{' '.join(leading)}: {missing}" for leading, _, missing in rows if missing]
    all_columns = (*map(Column, headings), Column("Total bps"), *columns.values())
    return Block(title, all_columns, (Group(None, body),), notes=tuple(notes))
