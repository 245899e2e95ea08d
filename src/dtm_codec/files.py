"""Files that are either whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path


@contextmanager
def atomic_path(path: str | PathLike[str]) -> Iterator[Path]:
    """A temporary name beside `path`, with its suffix; renamed to `path` if the block succeeds, else removed."""
    target = Path(path)
    temporary = target.with_name(f".{target.stem}-{secrets.token_hex(6)}{target.suffix}")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write `data` to `path`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
