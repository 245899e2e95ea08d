"""Files that are either whole or not there, those of a folder, and how to tell models on disk apart."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FileError
from .locks import close_locked, open_locked, remove_if_unlocked

_MACHINE = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:4]
_TEMPORARY = re.compile(r"\.([0-9a-f]{4})[0-9a-f]{12}(\..+)?")
"""Names of half-written files; they begin with the machine, since not all file systems show others its locks."""

_FORSAKEN_S = 24 * 3600
"""What another machine has not written to for so long is left over."""

_cleaned: set[str] = set()
"""Folders in which this process has removed leftovers."""


@contextmanager
def atomic_path(path: str | PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """A temporary name beside `path`, with its suffix; renamed to `path` if the block succeeds, else removed.

    Without `overwrite`, `FileExistsError` if `path` is there by then: of several processes, one succeeds.

    It is locked while it is written. The first file that a process writes to a folder clears away the unlocked ones:
    they are of processes that were killed.
    """
    target = Path(path)
    if (folder := os.path.abspath(target.parent)) not in _cleaned:  # noqa: PTH100 - links may change, names do not
        _cleaned.add(folder)
        remove_leftovers(target.parent)
    lock = None
    while lock is None:  # another process may be looking whether this is a leftover
        temporary = target.with_name(f".{_MACHINE}{secrets.token_hex(6)}{target.suffix}")  # no longer than most names
        lock = open_locked(temporary, new=True)
    try:
        mode = temporary.stat().st_mode
        yield temporary
        if temporary.stat().st_mode != mode:  # a library that makes its own file may keep others from reading it
            temporary.chmod(mode)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        if overwrite:
            temporary.replace(target)
        else:
            _rename_to_new(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
        close_locked(lock)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed left half written in `folder`; what is being written stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        found = [(folder / entry.name, match) for entry in entries if (match := _TEMPORARY.fullmatch(entry.name))]
        for path, match in found:
            if match[1] == _MACHINE or time.time() - path.stat().st_mtime > _FORSAKEN_S:
                remove_if_unlocked(path)


def _rename_to_new(temporary: Path, target: Path) -> None:
    """Rename, unless there is a file of that name."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: claim the name, then replace what claims it
        target.open("xb").close()
        temporary.replace(target)


def read_regular(path: str | PathLike[str], most: int) -> bytes:
    """The content of a file that must be small. A device, which may never end, and a pipe are refused."""
    if Path(path).exists() and (reason := why_no_file(Path(path))):  # else it is Python's own FileNotFoundError
        raise FileError(f"cannot read {path}: {reason}")
    with Path(path).open("rb") as file:
        return read_up_to(file, most, str(path))


def why_no_file(path: Path) -> str | None:
    """What stands against reading a path as a regular file. Devices and pipes may never end."""
    if path.is_file():
        return None
    if path.is_dir():
        return "it is a folder"
    return "it is a device, a pipe or a socket; allowed: a regular file" if path.exists() else "no such file"


def read_up_to(file: BinaryIO, most: int, name: str) -> bytes:
    """All that a file holds, if that is not more than `most` bytes."""
    data = file.read(most + 1)
    if len(data) > most:
        raise FileError(f"{name} has more than {most >> 20} MiB; allowed: up to that")
    return data


def walk(folder: Path, leave_out: Path | None = None) -> Iterator[Path]:
    """All files under `folder`, but not under `leave_out`, in the order of their paths.

    What is hidden is left alone, and what lies in a hidden folder: it is half-written, an editor's, or a version
    control's. Links are followed, but no folder is entered twice. A link to nowhere counts as a file.
    """
    entered = {folder.resolve()} | ({leave_out.resolve()} if leave_out else set())

    def below(parent: Path) -> Iterator[Path]:
        _, folders, files = next(os.walk(parent, onerror=_raise))
        folder_names = set(folders)
        for name in sorted(name for name in folders + files if not name.startswith(".")):
            path = parent / name
            if name not in folder_names:
                yield path
            elif (target := path.resolve()) not in entered:
                entered.add(target)
                yield from below(path)

    return below(folder)


def _raise(error: OSError) -> None:
    raise error


def files_under(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files at any depth with one of these suffixes, in order; see `walk`."""
    return [path for path in walk(folder) if path.suffix.lower() in suffixes and path.is_file()]


def write_atomically(path: str | PathLike[str], data: bytes, *, overwrite: bool = True) -> None:
    """Write `data` to `path`, whole or not at all."""
    with atomic_path(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(data)


def json_bytes(values: Any) -> bytes:
    """A JSON file for people to read too."""
    return (json.dumps(values, indent=2) + "\n").encode()


def fingerprint(path: Path) -> str:
    """Eight hex digits that tell one model file or folder from another: sizes and the first MiB of every file."""
    digest = hashlib.sha256()
    for file in sorted(p for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file()):
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        with file.open("rb") as data:
            digest.update(data.read(1 << 20))
    return digest.hexdigest()[:8]
