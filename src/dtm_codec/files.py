"""Files that are either whole or not there, those of a folder, and how to tell models on disk apart."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path


@contextmanager
def atomic_path(path: str | PathLike[str]) -> Iterator[Path]:
    """A temporary name beside `path`, with its suffix; renamed to `path` if the block succeeds, else removed."""
    target = Path(path)
    temporary = target.with_name(f".{secrets.token_hex(8)}{target.suffix}")  # no longer than most names
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


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


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write `data` to `path`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def fingerprint(path: Path) -> str:
    """Eight hex digits that tell one model file or folder from another: sizes and the first MiB of every file."""
    digest = hashlib.sha256()
    for file in sorted(p for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file()):
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        with file.open("rb") as data:
            digest.update(data.read(1 << 20))
    return digest.hexdigest()[:8]
