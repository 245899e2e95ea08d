"""What `encode` and `decode` share: which files, where to, and going on after a bad one."""

from __future__ import annotations

import glob
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import DTMCodecError
from ..files import files_under, write_atomically

STREAM = "-"
"""Standard input, or standard output."""


class FileError(DTMCodecError):
    """A file that is not there to be read, or that cannot or must not be written."""


@dataclass(frozen=True)
class Conversion:
    read_suffixes: tuple[str, ...]
    """What a folder is searched for."""
    write_suffixes: tuple[str, ...]
    """What an output file may be called; the first is the default."""
    beside: str
    """Suffix of the output when it is put beside its input."""


@dataclass(frozen=True)
class Job:
    """One file to turn into another; None stands for standard input or output."""

    source: Path | None
    target: Path | None
    report: Callable[[float], None] = field(default=lambda done: None, compare=False)
    """Takes how much of the job is done, 0 ... 1, where it takes so long that one wants to know."""

    @property
    def name(self) -> str:
        return str(self.source or "standard input")

    def read(self) -> Path | bytes:
        """A path where the input is a file; its bytes where it can be read only once (standard input, a pipe)."""
        if self.source is None:
            return sys.stdin.buffer.read()
        if self.source.exists() and not self.source.is_file():
            return self.source.read_bytes()
        return self.source

    def write(self, data: bytes) -> None:
        """Put the output where it belongs, whole or not at all."""
        if self.target is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.target, data)
        except OSError as error:
            raise FileError(f"cannot write {self.target}: {error.strerror or error}") from error


@dataclass(frozen=True)
class Plan:
    jobs: tuple[Job, ...]
    is_batch: bool
    """More than one file was asked for, so that a bad one does not stop the rest."""


def plan(inputs: Sequence[str], output: str | None, conversion: Conversion) -> Plan:
    """Which files to write for files, folders (searched to any depth), globs and `-`."""
    found = [pair for text in inputs for pair in _expand(text, conversion)]
    is_batch = len(found) > 1 or any(_is_many(text) for text in inputs)
    if sum(source is None for source, _ in found) > 1:
        raise typer.BadParameter("'-' (standard input) can be given once", param_hint="IN")
    if output == STREAM and is_batch:
        raise typer.BadParameter("standard output takes one file", param_hint="-o")
    as_file = _output_is_file(output, conversion)
    if as_file and is_batch:
        raise typer.BadParameter(f"{output} is one file, for {len(found)} inputs give a folder", param_hint="-o")

    def target(source: Path | None, relative: Path) -> Path | None:
        if output == STREAM or (output is None and source is None):
            return None
        if as_file:
            return Path(str(output))
        if output is not None:
            return Path(output) / relative.with_suffix(conversion.write_suffixes[0])
        assert source is not None
        return source.with_name(source.stem + conversion.beside)

    jobs = dict.fromkeys(Job(source, target(source, relative)) for source, relative in found)  # named twice, done once
    return Plan(tuple(jobs), is_batch)


def _is_many(text: str) -> bool:
    return Path(text).is_dir() or (glob.has_magic(text) and not Path(text).exists())


def _expand(text: str, conversion: Conversion) -> Iterator[tuple[Path | None, Path]]:
    """Files that one argument names, each with its path under an output folder."""
    path = Path(text)
    if text == STREAM:
        yield None, Path("stdin")
    elif path.is_dir():
        files = files_under(path, conversion.read_suffixes)
        if not files:
            raise typer.BadParameter(f"no {', '.join(conversion.read_suffixes)} file in {text}", param_hint="IN")
        yield from ((file, file.relative_to(path)) for file in files)
    elif _is_many(text):
        matches = map(Path, sorted(glob.glob(text, recursive=True)))  # noqa: PTH207 - Path.glob takes no absolute one
        files = [match for match in matches if match.is_file()]
        if not files:
            raise typer.BadParameter(f"no file matches {text}", param_hint="IN")
        yield from ((file, Path(file.name)) for file in files)
    else:
        yield path, Path(path.name)


def _output_is_file(output: str | None, conversion: Conversion) -> bool:
    """Whether `-o` names a file: by its suffix. A name without one is a folder."""
    if output is None or output == STREAM or output.endswith("/") or Path(output).is_dir():
        return False
    suffix = Path(output).suffix.lower()
    if suffix and suffix not in conversion.write_suffixes:
        allowed = f"{', '.join(conversion.write_suffixes)} for a file, no suffix for a folder"
        raise typer.BadParameter(f"{output} has suffix {suffix!r}; allowed: {allowed}", param_hint="-o")
    return bool(suffix)


@dataclass(frozen=True)
class Outcome:
    """What one job came to, for people and for programs."""

    line: str
    record: dict[str, Any]


def run(work: Plan, prepare: Callable[[], Callable[[Job], Outcome]], *, force: bool, as_json: bool) -> None:
    """Do all jobs, report each on stderr, and exit with 1 if one of several failed, 2 if the only one did.

    `prepare` loads what all jobs need, once, and only if a job is left that may write its output.
    """
    if as_json and any(job.target is None for job in work.jobs):
        raise typer.BadParameter("standard output cannot take both the file and the report", param_hint="--json")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    refusals = dict(_refusals(work.jobs, force))
    convert = prepare() if len(refusals) < len(work.jobs) else None
    records = []
    with _progress(console, len(work.jobs)) as show:
        for number, job in enumerate(work.jobs):
            show(number)
            record: dict[str, Any] = {"input": str(job.source or STREAM), "output": str(job.target or STREAM)}
            try:
                if job in refusals:
                    raise refusals[job]
                assert convert is not None
                outcome = convert(replace(job, report=partial(_show_part, show, number)))
                record |= outcome.record
                console.print(f"{job.name} -> {job.target or 'standard output'}: {outcome.line}", markup=False)
            except (DTMCodecError, OSError) as error:
                record["error"] = describe(error)
                located = "" if job.name in record["error"] else f"{job.name}: "
                console.print(f"{located}{record['error']}", markup=False, style="red")
            records.append(record)
    failures = sum("error" in record for record in records)
    if as_json:
        typer.echo(json.dumps(records, indent=2))
    if work.is_batch:
        console.print(f"{len(records) - failures} of {len(records)} files done, {failures} failed")
    if failures:
        raise typer.Exit(1 if work.is_batch else 2)


def _show_part(show: Callable[[float], None], before: int, done: float) -> None:
    show(before + done)


def describe(error: DTMCodecError | OSError) -> str:
    if isinstance(error, OSError):
        return ": ".join(filter(None, (error.filename, error.strerror or str(error))))
    return " ".join(str(error).split())


def _refusals(jobs: Sequence[Job], force: bool) -> Iterator[tuple[Job, FileError]]:
    """Jobs without an input, or that would destroy something: found before any work is done."""
    taken: dict[Path, Job] = {}
    for job in jobs:
        source, target = job.source, job.target
        if source is not None and not source.exists():
            yield job, FileError(f"{source}: no such file")
            continue
        if target is None:
            continue
        if target in taken:
            yield job, FileError(f"{target} is already the output of {taken[target].name}")
        elif target.exists() and source is not None and target.samefile(source):
            yield job, FileError(f"{target} is the input itself")
        elif target.exists() and not force:
            yield job, FileError(f"{target} exists; --force overwrites it")
        taken.setdefault(target, job)


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[float], None]]:
    """A bar for several files on a terminal, and for one that reports how far it is; nothing in a log."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("files", total=total, visible=total > 1)

        def show(done: float) -> None:
            progress.update(task, completed=done, visible=total > 1 or done > 0)

        yield show
