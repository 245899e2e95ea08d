"""The way to the terminal: every message and every progress bar of a command goes through here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TaskProgressColumn, TextColumn
from rich.text import Text

from ..errors import DTMCodecError
from ..system.terminal import PrintableConsole, printable, printable_lines

PATIENCE_S = 2.0
"""Work that takes longer shows a bar, on a terminal."""


def say(text: object) -> None:
    """Results, on standard output."""
    typer.echo(printable_lines(str(text)))


def complain(text: object) -> None:
    """What is not a result, on standard error."""
    typer.echo(printable_lines(str(text)), err=True)


def console(*, stderr: bool = False) -> Console:
    """For tables on standard output and lines in colour on standard error, which are not broken."""
    return PrintableConsole(stderr=stderr, highlight=False, soft_wrap=stderr)


def describe(error: DTMCodecError | OSError) -> str:
    """An error as one line."""
    if isinstance(error, OSError):
        name = error.filename.decode(errors="replace") if isinstance(error.filename, bytes) else error.filename
        return printable(": ".join(filter(None, (str(name or ""), error.strerror or str(error)))))
    return printable(" ".join(str(error).split()))


class Bar:
    """One piece of work."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def __call__(self, done: float, total: float, what: str | None = None) -> None:
        self._progress.update(self._task, completed=done, total=total, description=what)

    def share(self, done: float) -> None:
        """How much of it is done, 0 ... 1."""
        self(done, 1.0)


Start: TypeAlias = Callable[[str], Bar]


@contextmanager
def progress_bars(
    on: Console | None = None, *, patience_s: float | None = None, hidden: bool = False
) -> Iterator[Start]:
    """Gives what starts a bar for a named piece of work; the bar is told how much is done, of how much.

    On a terminal, bars with the time that is left appear if it takes long, whether or not they were told anything by
    then. In a log nothing does.
    """
    out = on or console(stderr=True)
    hidden |= not out.is_interactive
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), _TimeLeft())
    # what is written to standard output may go to a file, so it must not be drawn above the bars
    progress = Progress(*columns, console=out, transient=True, redirect_stdout=False, disable=hidden)
    timer = threading.Timer(PATIENCE_S if patience_s is None else patience_s, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda what: Bar(progress, progress.add_task(what, total=None))
    finally:
        timer.cancel()
        timer.join()  # it may be starting the bars right now
        progress.stop()


@contextmanager
def progress_bar(what: str) -> Iterator[Bar]:
    with progress_bars() as start:
        yield start(what)


class _TimeLeft(ProgressColumn):
    """Or the time that has passed, as long as nothing else is known."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        seconds = int(left if left is not None else task.elapsed or 0)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return Text(f"{clock} {'so far' if left is None else 'left'}", style="progress.remaining")
