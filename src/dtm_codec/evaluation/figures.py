"""The rate-distortion figure (paper Figure 2): a picture for each metric and judge, total bits a second across."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from ..system.files import atomic_path
from ..system.optional import import_optional
from .document import Figure, Panel
from .paper import curves as paper_curves
from .summary import MetricInfo, Summary
from .systems.plain import UNCODED_SERIES

_OURS = {"DTM-Codec VFR": ("#0b5fa5", "o"), "DTM-Codec FFR": ("#d1495b", "s")}
_OURS_BY_RATE = (("#0b5fa5", "D"), ("#d1495b", "P"), ("#3f9ad6", "X"))
"""One model at several rates, or with another selector."""
_OTHERS = ("#5b8c5a", "#8e6c8a", "#c98b2b", "#3c8d93", "#7a5c3e", "#6b6b6b", "#b0578d")
_MARKERS = ("^", "v", "D", "P", "X", "*", "<", ">")
_SAME_JUDGE_AS_PAPER = ("PESQ", "STOI")
"""Formulas, not learned judges: there the paper's curves may stand in the same panel."""

Points = dict[str, list[tuple[float, float, float, float]]]
"""Series -> (bps, mean, low, high)"""


def rate_distortion(summaries: Sequence[Summary], folder: Path, *, paper: bool = False) -> Figure | None:
    """Draw all systems that have a rate, one picture for each metric; None if no system has one.

    paper: add the paper's curves where the metric is a formula.
    """
    panels: dict[tuple[str, str], tuple[MetricInfo, Points]] = {}
    for summary in summaries:
        for system in summary.systems.values():
            if system.bps is None or system.series in UNCODED_SERIES:
                continue
            for name, estimate in system.metrics.items():
                info = summary.metrics[name]
                _, points = panels.setdefault((name, estimate.judge), (info, {}))
                entry = (system.bps.total, estimate.mean, estimate.low, estimate.high)
                points.setdefault(system.series, []).append(entry)
    if not panels:
        return None
    names = sorted({series for _, points in panels.values() for series in points}, key=lambda s: (s not in _OURS, s))
    others = zip(cycle(_OTHERS), cycle(_MARKERS), strict=False)
    own = cycle(_OURS_BY_RATE)
    styles = {name: _OURS.get(name) or next(own if name.startswith("DTM-Codec") else others) for name in names}
    drawn: list[Panel] = []
    judges: Counter[str] = Counter()
    for (name, _), (info, points) in panels.items():
        label = re.sub(r"[^a-z0-9]+", "-", name.lower())
        judges[label] += 1
        file = f"rate_distortion-{label}" + (f"-{judges[label]}" if judges[label] > 1 else "")
        _draw(info, points, styles, folder / file, paper)
        drawn.append(Panel(file, f"{info.label} over total bits a second"))
    caption = "Quality over total bits a second; bars are 95 % intervals over utterances."
    if paper and any(info.label in _SAME_JUDGE_AS_PAPER for info, _ in panels.values()):
        caption += " Dashed: the paper's models on its test set, where the metric is a formula and not a learned judge."
    return Figure(tuple(drawn), caption)


def _draw(info: MetricInfo, points: Points, styles: dict[str, tuple[str, str]], path: Path, with_paper: bool) -> None:
    import_optional("matplotlib").use("Agg")
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(4.6, 3.9), layout="constrained")
    _panel(axes, info, points, styles, with_paper)
    handles, labels = axes.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    with pyplot.rc_context({"svg.hashsalt": path.name}):
        for suffix, metadata in ((".svg", {"Date": None}), (".pdf", {"CreationDate": None})):  # alike when repeated
            with atomic_path(path.with_name(path.name + suffix)) as temporary:
                drawing.savefig(temporary, metadata=metadata)
    pyplot.close(drawing)


def _panel(axes: Any, info: MetricInfo, points: Points, styles: dict[str, tuple[str, str]], with_paper: bool) -> None:
    rates: list[float] = []
    for series, values in points.items():
        color, marker = styles[series]
        bps, mean, low, high = zip(*sorted(values), strict=True)
        rates += bps
        errors = ([m - a for m, a in zip(mean, low, strict=True)], [b - m for m, b in zip(mean, high, strict=True)])
        axes.errorbar(
            bps, mean, errors, color=color, marker=marker, markersize=5, capsize=2, linewidth=1.4, label=series
        )
    if with_paper and info.label in _SAME_JUDGE_AS_PAPER:
        for series, (color, marker) in _OURS.items():
            curve = paper_curves(info.label)[series]
            rates += [bps for bps, _ in curve]
            label = f"{series.removeprefix('DTM-Codec ')} of the paper"
            look = {"color": color, "marker": marker, "markersize": 4, "linestyle": "--", "alpha": 0.55}
            axes.plot(*zip(*curve, strict=True), label=label, **look)
    low_rate, high_rate, logarithmic = rate_axis(rates)
    axes.set_xscale("log" if logarithmic else "linear")
    axes.set_xlim(low_rate, high_rate)
    ticks = rate_ticks(low_rate, high_rate, logarithmic)
    axes.set_xticks(ticks, [f"{t / 1000:g}k" if t >= 1000 else f"{t:g}" for t in ticks], fontsize=8)
    axes.minorticks_off()
    axes.margins(y=0.12)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    arrow = "↑" if info.higher_is_better else "↓"
    axes.set_title(f"{info.label} {arrow}" + (f" ({info.unit})" if info.unit else ""), fontsize=11, parse_math=False)
    judge = info.judge.split(",")[0][:60]
    axes.set_xlabel(f"total bits a second\njudge: {judge}", fontsize=8, parse_math=False)


def rate_axis(rates: Sequence[float]) -> tuple[float, float, bool]:
    """Lowest and highest rate of an axis that fits its points with some air, and whether it is logarithmic."""
    low, high = min(rates), max(rates)
    if high > 3 * low > 0:
        air = (high / low) ** 0.08
        return low / air, high * air, True
    air = 0.08 * (high - low) or 0.2 * high
    return low - air, high + air, False


def rate_ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    """Two to seven round rates within the axis."""
    if not logarithmic:
        step = next(s * 10.0**e for e in range(-2, 7) for s in (1, 2, 2.5, 5) if (high - low) / (s * 10.0**e) <= 6)
        return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    rounds = ((1, 1.5, 2, 3, 4, 6, 8), (1, 2, 5), (1, 3), (1,))
    for digits in rounds:
        ticks = [d * 10.0**e for e in range(8) for d in digits if low <= d * 10.0**e <= high]
        if len(ticks) <= 7:
            return ticks
    return ticks
