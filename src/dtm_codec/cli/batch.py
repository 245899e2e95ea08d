"""What `encode`, `decode`, `thin` and `show` share: doing jobs one after the other, and going on after a bad one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from ..errors import DTMCodecError, FileError
from ..speech.raw import RawAudio, RawFormat
from ..system.files import atomic_path, remove_leftovers
from ..system.memory import memory_errors
from . import standard_streams, terminal
from .jobs import STREAM, Job, Plan, exists

if TYPE_CHECKING:
    from ..speech.audio import Samples


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
        source = standard_streams.open_source(self.job.source)
        return source if raw is None or isinstance(source, Path) else RawAudio(source, raw)

    def content(self, most: int) -> bytes:
        """The content of an input that must be small."""
        return standard_streams.read_bytes(self.job.source, most)

    @contextmanager
    def output(self) -> Iterator[BinaryIO]:
        """A seekable file for the output, which goes where it belongs when the block ends, whole or not at all."""
        target = self.job.target
        if target is None:
            with tempfile.TemporaryFile() as file:
                yield file
                standard_streams.to_standard_output(file)
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

    def warn(self, warning: str | None) -> None:
        """None: there is nothing to say."""
        self.warnings.extend([warning] if warning else [])

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
    console = terminal.console(stderr=True)
    refusals = dict(work.refusals(force))
    for folder in {job.target.parent for job in work.jobs if job.target is not None}:
        remove_leftovers(folder)
    records = []
    with terminal.progress_bars(console) as start:
        bar, total = start("starting"), len(work.jobs)
        convert = prepare() if len(refusals) < total else None
        for number, job in enumerate(work.jobs):
            record: dict[str, Any] = {"input": str(job.source or STREAM), "output": str(job.target or STREAM)}

            def show(done: float, number: int = number) -> None:
                bar(number + done, total, f"file {number + 1} of {total}")

            show(0.0)
            task = Task(job, force, show)
            try:
                if job in refusals:
                    raise refusals[job]
                assert convert is not None
                with memory_errors():
                    outcome = convert(task)
                record |= outcome.record
                console.print(f"{job.name} -> {job.target or 'standard output'}: {outcome.line}", markup=False)
            except (DTMCodecError, OSError) as error:
                record["error"] = terminal.describe(error)
                located = "" if job.name in str(error) else f"{job.name}: "
                console.print(f"{located}{record['error']}", markup=False, style="red")
            for warning in task.warnings:
                console.print(f"{job.name}: warning: {warning}", markup=False, style="yellow")
            if task.warnings:
                record["warnings"] = task.warnings
            records.append(record)
            show(1.0)
    failures = sum("error" in record for record in records)
    if as_json:
        terminal.say(json.dumps(records, indent=2))
    if work.is_batch:
        console.print(f"{len(records) - failures} of {len(records)} files done, {failures} failed")
    if failures:
        raise typer.Exit(1 if work.is_batch else 2)


def watched(blocks: Iterable[Samples], total: int, on_progress: Callable[[float], None]) -> Iterator[Samples]:
    done = 0
    for block in blocks:
        yield block
        done += block.size
        on_progress(done / total)
