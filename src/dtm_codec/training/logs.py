"""Where a run reports: metrics.jsonl, TensorBoard, wandb, and a progress bar on stderr."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from ..system.files import atomic_path, write_atomically
from ..system.optional import import_optional
from ..system.terminal import PrintableConsole
from .config import TrainConfig
from .deadline import Deadline

log = logging.getLogger(__name__)

CONSOLE = PrintableConsole(stderr=True)
"""Messages appear above the progress bar, not in it."""

METRICS_FILE = "metrics.jsonl"
PLOTTED = ("mel", "quantizer", "adversarial", "feature_matching", "discriminator", "keep_ratio", "dev/pesq")


def log_to_console() -> None:
    """Show the run's log lines on the terminal."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[RichHandler(console=CONSOLE)])


class _TimeLeft(ProgressColumn):
    """Until the last step or the deadline, whichever is first."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        ends = (task.time_remaining, task.fields["deadline"] - time.monotonic() if task.fields["deadline"] else None)
        left = min((max(0, round(end)) for end in ends if end is not None), default=None)
        if left is None:
            return Text("-:--:--", style="progress.remaining")
        return Text(f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}", style="progress.remaining")


class _Status(ProgressColumn):
    """Takes the room that the other columns leave, and is cut there."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["status"], no_wrap=True, overflow="ellipsis")


def progress_columns() -> tuple[ProgressColumn, ...]:
    """What is done, how much of it, when it ends, and how it goes. A narrow terminal cuts the last alone."""
    whole = Column(no_wrap=True)
    return (
        TextColumn("{task.description}", table_column=whole.copy()),
        MofNCompleteColumn(table_column=whole.copy()),
        BarColumn(bar_width=10, table_column=whole.copy()),
        _TimeLeft(table_column=whole.copy()),
        _Status(),
    )


class RunLog:
    """Metrics and progress of a run; on every process but the first it does nothing."""

    def __init__(self, folder: Path, config: TrainConfig, step: int, deadline: Deadline, *, enabled: bool) -> None:
        """`step`: where the run starts; what a killed run logged beyond it is dropped, for it is done again."""
        self._enabled = enabled
        self._tensorboard: Any = None
        self._wandb: Any = None
        self._progress = Progress(*progress_columns(), console=CONSOLE, disable=not enabled, refresh_per_second=2)
        if not enabled:
            return
        end = time.monotonic() + deadline.left if deadline.is_set else None
        self._task = self._progress.add_task("step", total=config.max_steps, completed=step, status="", deadline=end)
        self._path = folder / METRICS_FILE
        kept = [line for line in read_metrics(self._path) if line["step"] <= step]
        self._known = {(line["step"], name) for line in kept for name in line}
        write_atomically(self._path, "".join(f"{json.dumps(line)}\n" for line in kept).encode())
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

    @contextmanager
    def activity(self, what: str, total: float) -> Iterator[Callable[[float], None]]:
        """A bar of its own for what is done between or after steps; set by how much of it is done."""
        task = self._progress.add_task(what, total=round(total), status="s of speech", deadline=None)
        try:
            yield lambda done: self._progress.update(task, completed=min(round(done), round(total)))
        finally:
            self._progress.remove_task(task)

    def has(self, step: int, name: str) -> bool:
        """Whether the run that is resumed has logged that number at that step."""
        return self._enabled and (step, name) in self._known

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
    with atomic_path(folder / "losses.png") as temporary:
        figure.savefig(temporary, dpi=100)
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
