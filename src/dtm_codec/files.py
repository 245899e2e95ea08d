"""Files that are either whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path


@contextmanager
def atomic_path(path: str | PathLike[str]) -> Iterator[Path]:
    """A temporary name beside `path`, with its suffix; renamed to `path` if the block succeeds, else removed."""
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.stem}-", suffix=target.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes private files
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write `data` to `path`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
