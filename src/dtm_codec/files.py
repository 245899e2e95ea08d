"""Files that are either whole or not there, those of a folder, and how to tell models on disk apart."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: what a killed process leaves there is not cleaned up
    fcntl = None  # type: ignore[assignment]

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}(\..*)?")


@contextmanager
def atomic_path(path: str | PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """A temporary name beside `path`, with its suffix; renamed to `path` if the block succeeds, else removed.

    Without `overwrite`, `FileExistsError` if `path` is there by then: of several processes, one succeeds. While the
    block runs, the temporary file is locked. `remove_leftovers` knows by that which ones belong to nobody.
    """
    target = Path(path)
    temporary, lock = _locked_temporary(target)
    with lock or nullcontext():
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            if overwrite:
                temporary.replace(target)
            else:
                _rename_to_new(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def _locked_temporary(target: Path) -> tuple[Path, BinaryIO | None]:
    """A new file beside `target`, and a lock on it that ends with this process."""
    while True:
        path = target.with_name(f".{secrets.token_hex(8)}{target.suffix}")  # no longer than most names
        lock = path.open("xb")
        if fcntl is None:
            lock.close()
            return path, None
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # another process may have cleaned it up before it was locked
            if os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                return path, lock
        lock.close()


def _rename_to_new(temporary: Path, target: Path) -> None:
    """Rename, unless there is a file of that name."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: claim the name, then replace what claims it
        target.open("xb").close()
        temporary.replace(target)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files that killed processes have left in a folder; those that are being written stay."""
    if fcntl is None or not folder.is_dir():
        return
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def printable(text: str) -> str:
    """Text for a terminal: what would steer it, as file names can, is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


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


def fingerprint(path: Path) -> str:
    """Eight hex digits that tell one model file or folder from another: sizes and the first MiB of every file."""
    digest = hashlib.sha256()
    for file in sorted(p for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file()):
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        with file.open("rb") as data:
            digest.update(data.read(1 << 20))
    return digest.hexdigest()[:8]
