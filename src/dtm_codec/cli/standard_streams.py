"""Standard input, standard output and pipes: held on disk where they must be seekable, and never without a limit."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from ..errors import FileError
from ..system.files import read_up_to

PIPE_BYTES = 1 << 30
"""What a pipe may bring: 9 hours of 16-bit audio at 16 kHz. It may never end, and is held on disk."""

_CHUNK = 1 << 20


def open_source(path: Path | None) -> Path | BinaryIO:
    """A path where the input is a regular file. Where it can be read only once, a file without a name that holds it."""
    if path is None:
        return _held(sys.stdin.buffer, "standard input")
    kind = path.stat().st_mode
    if stat.S_ISREG(kind):
        return path
    if not stat.S_ISFIFO(kind):
        raise FileError(f"{path} is a device or a socket; allowed: regular files and pipes")
    with path.open("rb") as pipe:
        return _held(pipe, str(path))


def _held(stream: BinaryIO, name: str) -> BinaryIO:
    held = tempfile.TemporaryFile()  # noqa: SIM115 - the caller reads it
    size = 0
    while data := stream.read(_CHUNK):
        size += len(data)
        if size > PIPE_BYTES:
            held.close()
            raise FileError(f"{name} brings more than {PIPE_BYTES >> 20} MiB; allowed from a pipe: up to that")
        held.write(data)
    held.seek(0)
    return held


def read_bytes(path: Path | None, most: int) -> bytes:
    """The content of a source that must be small."""
    source = open_source(path)
    with source.open("rb") if isinstance(source, Path) else source as file:
        return read_up_to(file, most, str(path or "standard input"))


def to_standard_output(file: BinaryIO) -> None:
    """All that a file holds."""
    file.seek(0)
    try:
        shutil.copyfileobj(file, sys.stdout.buffer, _CHUNK)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more when it ends
        raise


def replace_closed() -> None:
    """Let no file that is opened later become standard input, output or error, and let whoever uses one that is closed
    hear about it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = _Closed("standard input")
    if sys.stdout is None:
        sys.stdout = _Closed("standard output")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - to the end


class _Closed(io.TextIOWrapper):
    """Stands in for a standard stream that is closed."""

    def __init__(self, name: str) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self._name = name

    @property
    def buffer(self) -> BinaryIO:
        raise OSError(errno.EBADF, "it is closed", self._name)

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed", self._name)
