"""Results as a plot."""

from __future__ import annotations

from pathlib import Path

from ...files import atomic_path
from ...optional import import_optional
from ...ratings import RatingResults

PLOT_SUFFIXES = (".png", ".svg", ".pdf")


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
