"""Where a run reports: metrics.jsonl, TensorBoard, wandb, and a progress bar on stderr."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..files import write_atomically
from ..optional import import_optional
from .config import TrainConfig

log = logging.getLogger(__name__)

CONSOLE = Console(stderr=True)
"""Messages appear above the progress bar, not in it."""

METRICS_FILE = "metrics.jsonl"
PLOTTED = ("mel", "quantizer", "adversarial", "feature_matching", "discriminator", "keep_ratio", "dev/pesq")


def log_to_console() -> None:
    """Show the run's log lines on the terminal."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[RichHandler(console=CONSOLE)])


class RunLog:
    """Metrics and progress of a run; on every process but the first it does nothing."""

    def __init__(self, folder: Path, config: TrainConfig, step: int, *, enabled: bool) -> None:
        """`step`: where the run starts; what a killed run logged beyond it is dropped, for it is done again."""
        self._enabled = enabled
        self._tensorboard: Any = None
        self._wandb: Any = None
        columns = (
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=16),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[status]}"),
        )
        self._progress = Progress(*columns, console=CONSOLE, disable=not enabled, refresh_per_second=2)
        if not enabled:
            return
        self._task = self._progress.add_task("train", total=config.max_steps, completed=step, status="")
        self._path = folder / METRICS_FILE
        kept = [json.dumps(line) for line in read_metrics(self._path) if line["step"] <= step]
        write_atomically(self._path, "".join(f"{line}\n" for line in kept).encode())
        self._file = self._path.open("a", encoding="utf-8")
        if "tensorboard" in config.loggers:
            self._tensorboard = _tensorboard(folder, step)
        if "wandb" in config.loggers:
            self._wandb = _wandb(folder, config)

    def __enter__(self) -> RunLog:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()
        if not self._enabled:
            return
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()

    def progress(self, step: int, status: str) -> None:
        if self._enabled:
            self._progress.update(self._task, completed=step, status=status)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if not self._enabled:
            return
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._tensorboard is not None:
            for name, value in values.items():
                self._tensorboard.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(dict(values), step=step)

    def audio(self, step: int, name: str, samples: Any, sample_rate: int) -> None:
        """Send a sample to TensorBoard, to be played there."""
        if self._tensorboard is not None:
            self._tensorboard.add_audio(name, samples, step, sample_rate)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; a line cut off by a kill is left out."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def plot_losses(folder: Path) -> None:
    """Draw the curves of metrics.jsonl into losses.png."""
    import_optional("matplotlib", "plot").use("Agg")
    from matplotlib import pyplot

    lines = read_metrics(folder / METRICS_FILE)
    shown = [name for name in PLOTTED if any(name in line for line in lines)]
    if not shown:
        return
    figure, axes = pyplot.subplots(len(shown), 1, figsize=(8, 1.8 * len(shown)), sharex=True, squeeze=False)
    for axis, name in zip(axes[:, 0], shown, strict=True):
        points = [(line["step"], line[name]) for line in lines if name in line]
        axis.plot(*zip(*points, strict=True), linewidth=0.8)
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[-1, 0].set_xlabel("step")
    figure.tight_layout()
    figure.savefig(folder / "losses.png", dpi=100)
    pyplot.close(figure)


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.warning("tensorboard is not installed; metrics are in %s alone", METRICS_FILE)
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)


def _wandb(folder: Path, config: TrainConfig) -> Any:
    wandb = import_optional("wandb")
    return wandb.init(project="dtm-codec", name=folder.name, dir=str(folder), config=config.to_dict(), resume="allow")
