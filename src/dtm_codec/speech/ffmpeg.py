"""What phones and browsers record, decoded by the program ffmpeg where it is installed.

libsndfile, which reads everything else, does not know these formats. A file is one of them by its first bytes, and
ffmpeg is told which: it must not guess, for some of its formats are lists of other files to open. It may open nothing
but the one file, through no network and no shell. It runs as long as it decodes faster than sound plays, and what it
decodes goes to disk.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import tempfile
import threading
import time
from os import PathLike
from pathlib import Path
from typing import IO, BinaryIO

from ..errors import AudioError

SUFFIXES = (".m4a", ".mp4", ".webm", ".amr", ".wma", ".aac", ".3gp")

PATIENCE_SECONDS = 20.0
"""ffmpeg may be so far behind the sound that it has decoded, its start included."""
MAX_DECODED_BYTES = 4 << 30
"""6 hours in stereo at 48 kHz."""
MAX_ALLOCATION = 256 << 20
"""For any one thing that ffmpeg puts into memory."""

_SLOWEST_BYTES = 2 * 8000
"""Of a second of sound, the fewest there are: 16 bits, mono, 8 kHz."""
_HEADER_BYTES = 64
"""An AU file without samples is shorter."""
_CHUNK = 1 << 18
HEAD_BYTES = 16


def format_of(head: bytes) -> str | None:
    """ffmpeg's name of the format of a file that begins like this; None if it is not one of those."""
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide"):
        return "mov"  # MP4 and M4A too, and 3GP
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "matroska"  # WebM
    if head.startswith(b"#!AMR"):
        return "amr"
    if head.startswith(bytes.fromhex("3026b2758e66cf11")):
        return "asf"  # WMA
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return "aac"
    return None


class _Decoded:
    """The last file that was decoded: a file is looked at several times on its way through the codec."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.key: object = None
        self.file: IO[bytes] | None = None


_last = _Decoded()


def decoded(source: str | PathLike[str] | BinaryIO, form: str, name: str) -> BinaryIO:
    """The sound of a file as an AU file on disk, of which nothing stays when it is closed."""
    if not isinstance(source, str | PathLike):
        with tempfile.NamedTemporaryFile() as copy:
            source.seek(0)
            shutil.copyfileobj(source, copy, _CHUNK)
            copy.flush()
            with _decode(Path(copy.name), form, name) as file:
                return Path(file.name).open("rb")
    path = Path(source)
    status = path.stat()
    key = (path.absolute(), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    with _last.lock:
        if _last.key != key or _last.file is None:
            if _last.file is not None:
                _last.file.close()
            _last.key, _last.file = None, None
            _last.file = _decode(path, form, name)
            _last.key = key
        return Path(_last.file.name).open("rb")


def _decode(path: Path, form: str, name: str) -> IO[bytes]:
    program = shutil.which("ffmpeg")
    if program is None:
        raise AudioError(f"cannot read {name}: {', '.join(SUFFIXES)} need the program ffmpeg, which is not installed")
    command: list[str | bytes] = [program, "-nostdin", "-hide_banner", "-v", "error", "-max_alloc", str(MAX_ALLOCATION)]
    command += [
        "-threads",
        "1",
        "-protocol_whitelist",
        "file",
        "-f",
        form,
        "-i",
        b"file:" + os.fsencode(path.absolute()),
    ]
    command += ["-map", "0:a:0", "-c:a", "pcm_s16be", "-f", "au", "-protocol_whitelist", "pipe", "pipe:1"]
    file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with tempfile.TemporaryFile() as complaints:
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints) as run:
                try:
                    size = _copy(run, file, name)
                finally:
                    run.kill()
            if size <= _HEADER_BYTES:  # of a file that breaks off, what is there is read
                complaints.seek(0)
                lines = complaints.read(1 << 16).decode(errors="replace").strip().splitlines()
                reason = lines[-1].strip().replace(str(path.absolute()), name) if lines else "it has no sound"
                raise AudioError(f"cannot read {name} by ffmpeg: {reason}")
    except BaseException:
        file.close()
        raise
    return file


def _copy(run: subprocess.Popen[bytes], file: IO[bytes], name: str) -> int:
    """What comes out of ffmpeg into a file, as long as it comes fast enough and is not too much. -> bytes"""
    assert run.stdout is not None
    size, began = 0, time.monotonic()
    with selectors.DefaultSelector() as waiting:
        waiting.register(run.stdout, selectors.EVENT_READ)
        while True:
            left = began + PATIENCE_SECONDS + size / _SLOWEST_BYTES - time.monotonic()
            if left <= 0 or not waiting.select(left):
                raise AudioError(f"cannot read {name}: ffmpeg was stopped, it takes longer than the sound lasts")
            data = os.read(run.stdout.fileno(), _CHUNK)
            if not data:
                file.flush()
                run.wait()
                return size
            size += len(data)
            if size > MAX_DECODED_BYTES:
                raise AudioError(f"cannot read {name}: more than {MAX_DECODED_BYTES >> 30} GiB of sound")
            file.write(data)
