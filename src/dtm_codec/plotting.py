"""A picture of where an utterance's tokens went (the paper's Sections 3.2 and 3.3, seen)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .system.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, KEPT, RATE, PATH, GRID = "#1f2430", "#d1495b", "#00798c", "#30638e", "#c4c9d4"
SMOOTHING_S = 0.08
"""Standard deviation of the window of the local token rate: about a phone."""
ZOOM_S = 0.5
"""Length of the close-up in which single steps can be seen."""
DYNAMIC_RANGE_DB = 70.0


@dataclass(frozen=True)
class Picture:
    """One utterance, before and after, with its keep mask."""

    title: str
    original: npt.NDArray[np.float32]
    """(T,)"""
    reconstruction: npt.NDArray[np.float32]
    """(T,)"""
    sample_rate: int
    mask: npt.NDArray[np.bool_]
    """(N,) True = kept"""
    frame_rate: float
    path: npt.NDArray[np.float64]
    """(N,) S_t, the path length up to each step."""
    tau: float | None
    """Path length per kept step, if the selector goes by it (PLE)."""
    start_s: float = 0.0
    """Where in the recording the utterance begins."""

    @property
    def times(self) -> npt.NDArray[np.floating[Any]]:
        """(N,) seconds at the middle of each step."""
        return self.start_s + (np.arange(self.mask.size) + 0.5) / self.frame_rate


def local_token_rate(mask: npt.NDArray[np.bool_], frame_rate: float) -> npt.NDArray[np.float64]:
    """Tokens a second around each step, over a Gaussian window. mask: (N,) -> (N,)"""
    reach = np.arange(-round(4 * SMOOTHING_S * frame_rate), round(4 * SMOOTHING_S * frame_rate) + 1)
    window = np.exp(-0.5 * (reach / (SMOOTHING_S * frame_rate)) ** 2)
    inside = slice(reach.size // 2, reach.size // 2 + mask.size)
    kept, steps = (np.convolve(x, window)[inside] for x in (mask.astype(float), np.ones(mask.size)))
    return frame_rate * kept / steps


def render(picture: Picture, image_format: str = "png") -> bytes:
    """The picture as an image file: png, svg or pdf."""
    matplotlib, figures = import_optional("matplotlib", "plot"), import_optional("matplotlib.figure", "plot")
    style: Any = {
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": "#9aa1ad",
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 9,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with matplotlib.rc_context(style):
        figure = figures.Figure(figsize=(12, 10.5), layout="constrained")
        _draw(figure, picture)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=image_format, dpi=130)
    return buffer.getvalue()


def _draw(figure: Figure, picture: Picture) -> None:
    figure.suptitle(picture.title, x=0.01, ha="left", fontsize=11, fontweight="bold", parse_math=False)
    grid = figure.add_gridspec(6, 1, height_ratios=(3, 3, 0.5, 1.5, 2, 2))
    above, below, strip, rate, path = axes = [figure.add_subplot(grid[row]) for row in range(5)]
    close_up = figure.add_subplot(grid[5])
    end_s = picture.start_s + picture.original.size / picture.sample_rate
    top_db = _spectrogram(above, picture.original, picture, None)
    _spectrogram(below, picture.reconstruction, picture, top_db)
    _kept_strip(strip, picture)
    _token_rate(rate, picture)
    _path_length(path, picture)
    zoom = _zoom_span(picture)
    path.axvspan(*zoom, color="#edae49", alpha=0.35, lw=0)
    has_lines = _close_up(close_up, picture, zoom)
    for axis in axes:
        axis.set_xlim(picture.start_s, end_s)
        axis.tick_params(labelbottom=axis is path)
    for axis, title in zip(
        (*axes, close_up),
        (
            "original",
            "reconstruction",
            f"kept steps: {picture.mask.sum()} of {picture.mask.size}",
            "local token rate",
            "path length" if picture.tau is None else f"path length; a step is kept every $\\tau$ = {picture.tau:.3g}",
            "close-up of the shaded part: dots are kept steps"
            + (", lines are the multiples of $\\tau$" if has_lines else ""),
        ),
        strict=True,
    ):
        axis.set_title(title)
    close_up.set_xlabel("seconds")


def _spectrogram(axis: Axes, audio: npt.NDArray[np.float32], picture: Picture, top_db: float | None) -> float:
    """Power in dB, in magma's colours; returns the top of the scale, so that two pictures can share it."""
    size, hop = 512, 96
    padded = np.pad(audio, size // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop] * np.hanning(size)
    power = 20 * np.log10(np.abs(np.fft.rfft(frames)).T + 1e-6)  # (bins, frames)
    top = float(power.max()) if top_db is None else top_db
    half = 0.5 * hop / picture.sample_rate
    duration = (power.shape[1] - 1) * hop / picture.sample_rate
    axis.imshow(
        power,
        origin="lower",
        aspect="auto",
        cmap="magma",
        vmin=top - DYNAMIC_RANGE_DB,
        vmax=top,
        extent=(picture.start_s - half, picture.start_s + duration + half, 0, picture.sample_rate / 2000),
        interpolation="bilinear",
    )
    axis.set_ylabel("kHz")
    return top


def _kept_strip(axis: Axes, picture: Picture) -> None:
    axis.vlines(picture.times[picture.mask], 0, 1, color=KEPT, lw=0.8)
    axis.set_ylim(0, 1)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)


def _token_rate(axis: Axes, picture: Picture) -> None:
    rate = local_token_rate(picture.mask, picture.frame_rate)
    mean = picture.mask.mean() * picture.frame_rate
    axis.fill_between(picture.times, rate, color=RATE, alpha=0.25, lw=0)
    axis.plot(picture.times, rate, color=RATE, lw=1.2)
    axis.axhline(mean, color=INK, lw=0.8, ls="--")
    axis.text(0.995, 0.93, f"mean {mean:.1f} Hz", transform=axis.transAxes, ha="right", va="top")
    axis.set_ylim(0, max(picture.frame_rate, 1))
    axis.set_ylabel("Hz")


def _path_length(axis: Axes, picture: Picture) -> None:
    axis.plot(picture.times, picture.path, color=PATH, lw=1.4)
    axis.set_ylabel("$S_t$")
    axis.set_ylim(bottom=0)
    if (tau := picture.tau) is not None:
        from matplotlib.ticker import MaxNLocator

        multiples = np.asarray(MaxNLocator(5, integer=True).tick_values(0, float(picture.path[-1]) / tau)[:-1])
        axis.hlines(multiples * tau, 0, 1, transform=axis.get_yaxis_transform(), color=GRID, lw=0.7, zorder=0)
        units = axis.secondary_yaxis("right", functions=(lambda s: np.asarray(s) / tau, lambda k: np.asarray(k) * tau))
        units.set_ylabel("multiples of $\\tau$")
        units.set_yticks(multiples)


def _zoom_span(picture: Picture) -> tuple[float, float]:
    """The half second of the steepest change of rate: where adaptation is best seen."""
    steps = min(picture.mask.size, max(1, round(ZOOM_S * picture.frame_rate)))
    rate = local_token_rate(picture.mask, picture.frame_rate)
    spreads = np.ptp(np.lib.stride_tricks.sliding_window_view(rate, steps), axis=-1)
    first = int(spreads.argmax())
    return picture.start_s + first / picture.frame_rate, picture.start_s + (first + steps) / picture.frame_rate


def _close_up(axis: Axes, picture: Picture, span: tuple[float, float]) -> bool:
    """Single steps on the path; returns whether the multiples of tau are drawn, which they are unless they would fill
    the picture."""
    inside = (picture.times >= span[0]) & (picture.times <= span[1])
    times, path, kept = picture.times[inside], picture.path[inside], picture.mask[inside]
    has_lines = picture.tau is not None and bool(path[-1] - path[0] <= 4 * path.size * picture.tau)
    if picture.tau is not None and has_lines:
        first, last = np.floor(path[0] / picture.tau), np.ceil(path[-1] / picture.tau)
        axis.hlines(np.arange(first, last + 1) * picture.tau, *span, color=GRID, lw=0.7)
    axis.step(times, path, where="mid", color=PATH, lw=1.2)
    axis.plot(times[~kept], path[~kept], "o", ms=3.5, mfc="white", mec=PATH, mew=0.9)
    axis.plot(times[kept], path[kept], "o", ms=5, color=KEPT)
    axis.set_xlim(*span)
    axis.set_ylabel("$S_t$")
    return has_lines
