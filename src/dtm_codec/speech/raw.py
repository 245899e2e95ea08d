"""Samples without a header: what they are has to be said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple, TypeAlias, get_args

from ..errors import AudioError

SampleFormat: TypeAlias = Literal["s16le", "s32le", "f32le", "u8"]

MAX_CHANNELS = 32
"""More are a mistake."""


class _Form(NamedTuple):
    dtype: str
    subtype: str
    """As libsndfile calls it."""


_FORMS: dict[str, _Form] = {
    "s16le": _Form("<i2", "PCM_16"),
    "s32le": _Form("<i4", "PCM_32"),
    "f32le": _Form("<f4", "FLOAT"),
    "u8": _Form("|u1", "PCM_U8"),
}


@dataclass(frozen=True)
class RawFormat:
    """Little-endian samples, channels interleaved."""

    sample_rate: int
    channels: int = 1
    form: SampleFormat = "s16le"

    def __post_init__(self) -> None:
        if not 1 <= self.channels <= MAX_CHANNELS:
            raise AudioError(f"channels = {self.channels}; allowed: 1 ... {MAX_CHANNELS}")
        if self.form not in _FORMS:
            raise AudioError(f"format = {self.form!r}; allowed: {', '.join(get_args(SampleFormat))}")

    @property
    def dtype(self) -> str:
        return _FORMS[self.form].dtype

    @property
    def subtype(self) -> str:
        return _FORMS[self.form].subtype


@dataclass(frozen=True)
class RawAudio:
    """A seekable file of such samples."""

    file: BinaryIO
    format: RawFormat
