"""Results as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...ratings import RatingResults
from ...ratings.preferences import PairResult
from ...system.files import atomic_path
from ...system.optional import import_optional

PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def plot_preferences(results: Sequence[PairResult], path: Path, title: str, *, discrimination: bool) -> None:
    """Shares with exact 95 % intervals, a line a pair, and where chance is."""
    import_optional("matplotlib", "web").use("Agg")
    from matplotlib import pyplot

    counted = [result for result in results if result.share.share is not None]
    figure, axes = pyplot.subplots(figsize=(7.2, 1.6 + 0.5 * len(counted)), layout="constrained")
    axes.axvline(50, color="#55616f", linewidth=1, linestyle="--", zorder=1)
    for row, result in enumerate(counted):
        share, low, high = (100 * (value or 0) for value in (result.share.share, result.share.low, result.share.high))
        axes.plot((low, high), [row, row], color="#0b5cbd", linewidth=3, solid_capstyle="round", zorder=2)
        axes.plot(share, row, "o", color="#0b5cbd", markeredgecolor="white", markersize=9, zorder=3)
        text = f"{share:.0f} % of {result.share.of}"
        axes.annotate(text, (share, row), (0, 8), textcoords="offset points", ha="center", size=9)
    joint = "from" if discrimination else "over"
    names = [f"{result.first}\n{joint} {result.second}" for result in counted]
    axes.set(xlim=(0, 100), ylim=(len(counted) - 0.4, -0.8), xticks=range(0, 101, 25))
    axes.set_title(title, parse_math=False)
    axes.set_yticks(range(len(counted)), names, parse_math=False)
    axes.set_xlabel(("told apart" if discrimination else "the first is preferred") + ", % and exact 95 % interval")
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(left=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)


def plot(results: RatingResults, path: Path, title: str) -> None:
    """Means with 95 % intervals over listeners (over ratings where there is one listener)."""
    import_optional("matplotlib", "web").use("Agg")
    from matplotlib import pyplot

    scores = results.scores
    figure, axes = pyplot.subplots(figsize=(7.2, 1.4 + 0.42 * len(scores)), layout="constrained")
    for band in range(0, 100, 40):
        axes.axvspan(band, band + 20, color="#f1f4f8", zorder=0)
    for row, score in enumerate(scores):
        axes.plot(score.interval, [row, row], color="#0b5cbd", linewidth=3, solid_capstyle="round", zorder=2)
        axes.plot(score.mean, row, "o", color="#0b5cbd", markeredgecolor="white", markersize=9, zorder=3)
        axes.annotate(f"{score.mean:.1f}", (score.mean, row), (0, 8), textcoords="offset points", ha="center", size=9)
    axes.set(xlim=(0, 100), ylim=(len(scores) - 0.4, -0.8), xticks=range(0, 101, 20))
    axes.set_title(title, parse_math=False)
    axes.set_yticks(range(len(scores)), [score.system for score in scores], parse_math=False)
    scale = axes.secondary_xaxis("top")
    scale.set_xticks([10, 30, 50, 70, 90], ["Bad", "Poor", "Fair", "Good", "Excellent"])
    scale.tick_params(length=0)
    listeners = len(results.listeners) - len(results.excluded)
    axes.set_xlabel(f"rating, mean and 95 % interval ({listeners} listeners)")
    for side in axes.spines.values():
        side.set_visible(False)
    scale.spines["top"].set_visible(False)
    axes.tick_params(left=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)
