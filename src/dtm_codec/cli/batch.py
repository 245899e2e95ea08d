"""What `encode`, `decode` and `show` share: doing jobs one after the other, going on after a bad one, and a bar."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..errors import DTMCodecError
from ..speech.raw import RawAudio, RawFormat
from ..system.files import atomic_path, printable, remove_leftovers
from . import streams
from .jobs import STREAM, FileError, Job, Plan, exists

PATIENCE_S = 2.0
"""Work that takes longer shows a bar, on a terminal."""


@dataclass(frozen=True)
class Task:
    """A job being done."""

    job: Job
    overwrite: bool
    on_progress: Callable[[float], None]
    """Is told how much of this job is done, 0 ... 1."""
    warnings: list[str] = field(default_factory=list)

    def source(self, raw: RawFormat | None = None) -> Path | BinaryIO | RawAudio:
        """The input: a path, or a seekable file if it came through a pipe. raw: what it holds without a header"""
        source = streams.open_source(self.job.source)
        return source if raw is None or isinstance(source, Path) else RawAudio(source, raw)

    def content(self, most: int) -> bytes:
        """The content of an input that must be small."""
        return streams.read_bytes(self.job.source, most)

    @contextmanager
    def output(self) -> Iterator[BinaryIO]:
        """A seekable file for the output, which goes where it belongs when the block ends, whole or not at all."""
        target = self.job.target
        if target is None:
            with tempfile.TemporaryFile() as file:
                yield file
                streams.to_standard_output(file)
            return
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(target, overwrite=self.overwrite) as temporary, temporary.open("wb") as file:
                yield file
                file.close()
        except FileExistsError as error:
            raise exists(target) from error
        except OSError as error:
            raise FileError(f"cannot write {target}: {error.strerror or error}") from error

    def write(self, data: bytes) -> None:
        with self.output() as file:
            file.write(data)


@dataclass(frozen=True)
class Outcome:
    """What one job came to, for people and for programs."""

    line: str
    record: dict[str, Any]


def run(work: Plan, prepare: Callable[[], Callable[[Task], Outcome]], *, force: bool, as_json: bool) -> None:
    """Do all jobs, report each on stderr, and exit with 1 if one of several failed, 2 if the only one did.

    `prepare` loads what all jobs need, once, and only if a job is left that may write its output.
    """
    if as_json and any(job.target is None for job in work.jobs):
        raise typer.BadParameter("standard output cannot take both the file and the report", param_hint="--json")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    refusals = dict(work.refusals(force))
    for folder in {job.target.parent for job in work.jobs if job.target is not None}:
        remove_leftovers(folder)
    convert = prepare() if len(refusals) < len(work.jobs) else None
    records = []
    with progress_bar(console, len(work.jobs)) as show:
        for number, job in enumerate(work.jobs):
            record: dict[str, Any] = {"input": str(job.source or STREAM), "output": str(job.target or STREAM)}
            task = Task(job, force, lambda done, number=number: show(number + done))  # type: ignore[misc]
            try:
                if job in refusals:
                    raise refusals[job]
                assert convert is not None
                with memory_errors():
                    outcome = convert(task)
                record |= outcome.record
                line = f"{job.name} -> {job.target or 'standard output'}: {outcome.line}"
                console.print(printable(line), markup=False)
            except (DTMCodecError, OSError) as error:
                record["error"] = describe(error)
                located = "" if job.name in str(error) else f"{printable(job.name)}: "
                console.print(f"{located}{record['error']}", markup=False, style="red")
            for warning in task.warnings:
                console.print(f"{printable(job.name)}: warning: {warning}", markup=False, style="yellow")
            if task.warnings:
                record["warnings"] = task.warnings
            records.append(record)
            show(number + 1)
    failures = sum("error" in record for record in records)
    if as_json:
        typer.echo(json.dumps(records, indent=2))
    if work.is_batch:
        console.print(f"{len(records) - failures} of {len(records)} files done, {failures} failed")
    if failures:
        raise typer.Exit(1 if work.is_batch else 2)


def describe(error: DTMCodecError | OSError) -> str:
    if isinstance(error, OSError):
        name = error.filename.decode(errors="replace") if isinstance(error.filename, bytes) else error.filename
        return printable(": ".join(filter(None, (str(name or ""), error.strerror or str(error)))))
    return printable(" ".join(str(error).split()))


@contextmanager
def memory_errors() -> Iterator[None]:
    """One file that does not fit into memory is an error of this file."""
    try:
        yield
    except MemoryError as error:
        raise FileError("not enough memory") from error
    except RuntimeError as error:  # how torch says it
        if "allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise FileError("not enough memory") from error


@contextmanager
def progress_bar(console: Console, total: int, patience_s: float = PATIENCE_S) -> Iterator[Callable[[float], None]]:
    """Gives what is to be called with the number of files done, parts of one included. On a terminal, a bar with the
    time that is left appears if it takes long; in a log nothing does."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("", total=total)
    started = time.monotonic()

    def show(done: float) -> None:
        bar.update(task, completed=done, description=f"file {min(int(done) + 1, total)} of {total}")
        if time.monotonic() - started > patience_s and not bar.live.is_started:
            bar.start()

    try:
        yield show
    finally:
        bar.stop()
