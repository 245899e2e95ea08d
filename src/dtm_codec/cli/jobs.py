"""Which files a command reads and writes: files, folders, globs and pipes to jobs, and what stands against them."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from ..errors import DTMCodecError, FileError
from ..speech.raw import RawFormat
from ..system.files import files_under

STREAM = "-"
"""Standard input, or standard output."""


def _anything(path: Path) -> None:
    """For commands that find out about a file as they read it."""


@dataclass(frozen=True)
class Conversion:
    """What kind of files a command turns into what."""

    read_suffixes: tuple[str, ...]
    """What a folder is searched for."""
    write_suffixes: tuple[str, ...]
    """What an output file may be called; the first is the default."""
    beside: str
    """Suffix of the output when it is put beside its input."""
    check: Callable[[Path], None] = _anything
    """Raises `DTMCodecError` for a file that is of another kind altogether, by a look at its start."""


@dataclass(frozen=True)
class Job:
    """One file to turn into another; None stands for standard input or output."""

    source: Path | None
    target: Path | None

    @property
    def name(self) -> str:
        """The input as messages call it."""
        return str(self.source or "standard input")


@dataclass(frozen=True)
class Plan:
    """The work of one command."""

    jobs: tuple[Job, ...]
    is_batch: bool
    """More than one file was asked for, so that a bad one does not stop the rest."""
    check: Callable[[Path], None]

    def refusals(self, force: bool) -> Iterator[tuple[Job, DTMCodecError]]:
        """Jobs without an input, or that would destroy something: found before any work is done."""
        taken: dict[Path, Job] = {}
        for job in self.jobs:
            source, target = job.source, job.target
            if source is not None:
                try:
                    if not source.exists():
                        raise FileError(f"{source}: no such file")
                    if source.is_file():
                        self.check(source)
                except (DTMCodecError, OSError) as error:
                    yield job, error if isinstance(error, DTMCodecError) else FileError(f"{source}: {error.strerror}")
                    continue
            if target is None:
                continue
            if target in taken:
                yield job, FileError(f"{target} is already the output of {taken[target].name}")
            elif target.exists() and source is not None and target.samefile(source):
                yield job, FileError(f"{target} is the input itself")
            elif target.exists() and not force:
                yield job, exists(target)
            taken.setdefault(target, job)


def exists(target: Path) -> FileError:
    return FileError(f"{target} exists; --force overwrites it")


def plan(inputs: Sequence[str], output: str | None, conversion: Conversion) -> Plan:
    """Which files to write for files, folders (searched to any depth), globs and `-`."""
    found = find(inputs, conversion.read_suffixes)
    is_batch = many(inputs, len(found))
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
    outputs = {job.target for job in jobs if job.target not in (None, job.source)} if output is None else set()
    # what an earlier run has put beside its input is found with it, and is not to be done again
    return Plan(tuple(job for job in jobs if job.source not in outputs), is_batch, conversion.check)


def find(inputs: Sequence[str], suffixes: tuple[str, ...]) -> list[tuple[Path | None, Path]]:
    """Files that arguments name, None for standard input, each with its path under an output folder."""
    found = [pair for text in inputs for pair in _expand(text, suffixes)]
    if sum(source is None for source, _ in found) > 1:
        raise typer.BadParameter("'-' (standard input) can be given once", param_hint="IN")
    return found


def only_standard_input(inputs: Sequence[str], raw: RawFormat | None) -> RawFormat | None:
    """Samples without a header come through standard input, or not at all."""
    if raw is not None and list(inputs) != [STREAM]:
        raise typer.BadParameter(
            f"samples without a header in {', '.join(inputs)}; allowed: on standard input (-)", param_hint="--rate"
        )
    return raw


def many(inputs: Sequence[str], found: int) -> bool:
    """Whether a command was asked for several files, be it that there is only one of them."""
    return found > 1 or any(_is_many(text) for text in inputs)


def _is_many(text: str) -> bool:
    return Path(text).is_dir() or (glob.has_magic(text) and not Path(text).exists())


def _expand(text: str, suffixes: tuple[str, ...]) -> Iterator[tuple[Path | None, Path]]:
    path = Path(text)
    if text == STREAM:
        yield None, Path("stdin")
    elif path.is_dir():
        files = files_under(path, suffixes)
        if not files:
            raise typer.BadParameter(f"no {', '.join(suffixes)} file in {text}", param_hint="IN")
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
