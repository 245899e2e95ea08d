"""The rate-distortion figure (paper Figure 2): one panel per metric and judge, total bits a second across."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from ..files import atomic_path
from ..optional import import_optional
from . import paper
from .rendering import Figure
from .summary import MetricInfo, Summary

_OURS = {"DTM-Codec VFR": ("#0b5fa5", "o"), "DTM-Codec FFR": ("#d1495b", "s")}
_OTHERS = ("#5b8c5a", "#8e6c8a", "#c98b2b", "#3c8d93", "#7a5c3e", "#6b6b6b", "#b0578d")
_MARKERS = ("^", "v", "D", "P", "X", "*", "<", ">")
_WITHOUT_RATE = ("Reference", "Low-pass anchor")
_SAME_JUDGE_AS_PAPER = ("PESQ", "STOI")
"""Formulas, not learned judges: there the paper's curves may stand in the same panel."""

Points = dict[str, list[tuple[float, float, float, float]]]
"""Series -> (bps, mean, low, high)"""


def rate_distortion(summaries: Sequence[Summary], folder: Path, stem: str = "rate_distortion") -> Figure | None:
    """Draw all systems that have a rate; None if no system has one."""
    panels: dict[tuple[str, str], tuple[MetricInfo, Points]] = {}
    for summary in summaries:
        for system in summary.systems.values():
            if system.bps is None or system.series in _WITHOUT_RATE:
                continue
            for name, estimate in system.metrics.items():
                info = summary.metrics[name]
                _, points = panels.setdefault((name, estimate.judge), (info, {}))
                entry = (system.bps.total, estimate.mean, estimate.low, estimate.high)
                points.setdefault(system.series, []).append(entry)
    if not panels:
        return None
    matplotlib = import_optional("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = sorted({series for _, points in panels.values() for series in points}, key=lambda s: (s not in _OURS, s))
    others = zip(cycle(_OTHERS), cycle(_MARKERS), strict=False)
    styles = {name: _OURS.get(name) or next(others) for name in names}
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    drawing, grid = pyplot.subplots(rows, columns, figsize=(4.6 * columns, 3.4 * rows + 1.1), squeeze=False)
    for axes, (info, points) in zip(grid.flat, panels.values(), strict=False):
        _panel(axes, info, points, styles)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    handles = {
        label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    drawing.legend(handles.values(), handles.keys(), loc="lower center", ncols=min(4, len(handles)), frameon=False)
    drawing.tight_layout(rect=(0, 0.045 + 0.035 * -(-len(handles) // 4) * 3 / (rows + 2), 1, 1))
    for suffix in (".png", ".pdf"):
        with atomic_path(folder / f"{stem}{suffix}") as temporary:
            drawing.savefig(temporary, dpi=160)
    pyplot.close(drawing)
    caption = "Quality over total bits a second; bars are 95 % intervals over utterances."
    if any(info.label in _SAME_JUDGE_AS_PAPER for info, _ in panels.values()):
        caption += " Dashed: the paper's models on its test set, where the metric is a formula and not a learned judge."
    return Figure(stem, caption)


def _panel(axes: Any, info: MetricInfo, points: Points, styles: dict[str, tuple[str, str]]) -> None:
    for series, values in points.items():
        color, marker = styles[series]
        bps, mean, low, high = zip(*sorted(values), strict=True)
        errors = ([m - a for m, a in zip(mean, low, strict=True)], [b - m for m, b in zip(mean, high, strict=True)])
        axes.errorbar(
            bps, mean, errors, color=color, marker=marker, markersize=5, capsize=2, linewidth=1.4, label=series
        )
    if info.label in _SAME_JUDGE_AS_PAPER:
        for series, (color, marker) in _OURS.items():
            curve = paper.curves(info.label)[series]
            label = f"{series.removeprefix('DTM-Codec ')} of the paper"
            axes.plot(
                *zip(*curve, strict=True),
                color=color,
                marker=marker,
                markersize=4,
                linestyle="--",
                alpha=0.55,
                label=label,
            )
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [t for t in (250, 400, 640, 800, 1280, 2000, 3200, 6000, 12000, 24000) if low <= t <= high]
    axes.set_xticks(ticks, [f"{t / 1000:g}k" if t >= 1000 else str(t) for t in ticks], fontsize=8)
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    arrow = "↑" if info.higher_is_better else "↓"
    axes.set_title(f"{info.label} {arrow}" + (f" ({info.unit})" if info.unit else ""), fontsize=11)
    axes.set_xlabel(f"total bits a second\njudge: {info.judge.split(',')[0][:60]}", fontsize=8)
