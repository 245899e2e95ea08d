"""Locks on files and folders that end with the process that holds them, even if it is killed.

They are `flock` locks: the kernel lets them go, so no process has to be asked whether it is still alive. Where a file
system has none (or on Windows), nothing is locked.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from os import PathLike
from pathlib import Path

from ..errors import DTMCodecError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".in-use"

_NOTHING = -1
"""What stands for a descriptor where there are no locks."""

_held: set[int] = set()
"""Descriptors whose locks this process holds."""


class FolderInUseError(DTMCodecError):
    """Another process writes to the folder."""


def _let_go_in_child() -> None:
    """A forked child shares its parent's locks, and would hold them after the parent is killed."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


def open_locked(path: Path, *, new: bool = False) -> int | None:
    """Open a file and lock it; None if another process has it. `new`: there must be no such file yet.

    Whoever has the lock may remove the file. So a file that is gone once the lock is there is made again.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_EXCL if new else 0), 0o666)
        if fcntl is None:  # Windows renames and removes no open file
            os.close(descriptor)
            return _NOTHING
        if not _lock(descriptor):
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                _held.add(descriptor)
                return descriptor
        os.close(descriptor)


def close_locked(descriptor: int) -> None:
    """Close the file, which ends the lock."""
    if descriptor in _held:  # not in a child that was forked meanwhile
        _held.remove(descriptor)
        os.close(descriptor)


def remove_if_unlocked(path: Path) -> bool:
    """Remove a file that no process has locked; whether it did. Where there are no locks, it stays."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:  # gone, or another user's
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Whether the lock is ours; it counts as ours on a file system that has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)


@contextmanager
def folder_in_use(folder: str | PathLike[str]) -> Iterator[None]:
    """Make `folder` if need be, and have it to oneself: a second process that asks for it is told who has it."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    path = target / LOCK_FILE
    descriptor = open_locked(path)
    if descriptor is None:
        raise FolderInUseError(f"{target} is in use by {_owner(path)}; allowed: one run at a time, or another folder")
    owner = os.getpid()
    try:
        path.write_text(_own_description(), "utf-8")
        yield
    finally:
        if os.getpid() == owner:  # not in a child that was forked meanwhile
            path.unlink(missing_ok=True)
            close_locked(descriptor)


def _own_description() -> str:
    program = Path(sys.argv[0]).name.replace("__main__.py", "dtm-codec")
    command = " ".join([program, *sys.argv[1:2]])
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    return f"process {os.getpid()} on {socket.gethostname()} ({command}, since {since})"


def _owner(path: Path) -> str:
    with suppress(OSError):
        if text := path.read_text("utf-8", "replace").strip():
            return " ".join(text.split())[:300]
    return "another process"  # it has just begun
