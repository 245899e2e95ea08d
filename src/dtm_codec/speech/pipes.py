"""Audio in pipes: samples as they come, without knowing how many there will be.

libsndfile wants to seek; a microphone cannot. So WAV headers are read and written here, and only the kinds that
recorders and players speak: 16- or 32-bit integers and 32-bit floats.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from ..errors import AudioError
from .audio import UNKNOWN_SIZE, Samples, check_sample_rate, scaled
from .pcm import to_pcm
from .raw import MAX_CHANNELS, RawFormat

BLOCK_BYTES = 1 << 16
"""Most that is taken from a pipe at a time; less if less has come."""

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_TYPES = {(_PCM, 16): "<i2", (_PCM, 32): "<i4", (_FLOAT, 32): "<f4"}
_MAX_CHUNK = 1 << 20
"""No real WAV header has a larger chunk before its samples."""


@dataclass(frozen=True)
class PipeAudio:
    """Samples to come."""

    stream: BinaryIO
    sample_rate: int
    channels: int
    dtype: str
    left: int | None = None
    """Bytes of samples, where a header says how many; what follows them is no sound."""

    def blocks(self) -> Iterator[Samples]:
        """Mono samples as they come, unchecked."""
        frame, rest, left = np.dtype(self.dtype).itemsize * self.channels, b"", self.left
        while left != 0 and (data := read_some(self.stream)):
            if left is not None:
                data = data[:left]
                left -= len(data)
            rest += data
            whole = len(rest) // frame * frame
            if whole:
                frames = scaled(np.frombuffer(rest[:whole], self.dtype).reshape(-1, self.channels))
                with np.errstate(invalid="ignore"):  # whoever takes it knows where in the stream it is, and refuses it
                    mono = frames.mean(axis=1, dtype=np.float32)
                yield mono
            rest = rest[whole:]


def read_some(stream: BinaryIO) -> bytes:
    """What has come, at least a byte; nothing at the end."""
    read1 = getattr(stream, "read1", None)
    data: bytes = stream.read(BLOCK_BYTES) if read1 is None else read1(BLOCK_BYTES)
    return data


def open_pipe(stream: BinaryIO, raw: RawFormat | None) -> PipeAudio:
    """WAV by its header, or samples without one."""
    if raw is not None:
        return PipeAudio(stream, check_sample_rate(raw.sample_rate), raw.channels, raw.dtype)
    head = stream.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise AudioError(
            f"standard input starts with {head[:4]!r}, not with b'RIFF'; allowed: WAV, or samples whose --rate is given"
        )
    form: tuple[int, int, int, int] | None = None
    while True:
        name, size = struct.unpack("<4sI", _exactly(stream, 8))
        if name == b"data":
            break
        if size > _MAX_CHUNK:
            raise AudioError(f"a WAV header with {size} bytes of {name!r}; allowed: up to {_MAX_CHUNK}")
        chunk = _exactly(stream, size + size % 2)
        if name == b"fmt " and size >= 16:
            kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", chunk[:16])
            if kind == _EXTENSIBLE and size >= 26:
                kind = struct.unpack("<H", chunk[24:26])[0]
            form = kind, bits, channels, rate
    if form is None:
        raise AudioError("a WAV header that does not say what its samples are")
    kind, bits, channels, rate = form
    if (kind, bits) not in _TYPES or not 1 <= channels <= MAX_CHANNELS:
        allowed = f"16- or 32-bit integers or 32-bit floats, 1 ... {MAX_CHANNELS} channels"
        raise AudioError(f"WAV of kind {kind}, {bits} bits, {channels} channels; allowed in a pipe: {allowed}")
    left = size if 0 < size < UNKNOWN_SIZE else None
    return PipeAudio(stream, check_sample_rate(rate), channels, _TYPES[kind, bits], left)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise AudioError("a WAV header that is cut off")
    return data


def wav_header(sample_rate: int) -> bytes:
    """Of mono 16-bit samples, however many will come: the lengths are the largest there are."""
    unknown = 0xFFFFFFFF
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, _PCM, 1, sample_rate, 2 * sample_rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", unknown, b"WAVE") + form + struct.pack("<4sI", b"data", unknown)


def pcm_bytes(samples: Samples) -> bytes:
    """Little-endian 16-bit samples; beyond full scale they are clipped."""
    return to_pcm(samples).tobytes()
