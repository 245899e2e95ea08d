"""What stands before the payload of a `.dtm` file: docs/bitstream.md, section 2.

`Header` checks its own limits, so writer and reader refuse the same things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Literal

from ..config import MAX_NAME_LENGTH, MAX_STRIDE
from ..errors import BitstreamError
from ..layout import Layout

MAGIC = b"DTM"
VERSION = 2
SIGNATURE_BYTES = 4
"""What `check_signature` looks at."""
RELEASES = {1: "0.1"}
"""Which releases of the package read the versions that this one does not."""

SAMPLE_RATES = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
"""Codes 1 ... 7; code 0 says that the rate follows as a varint."""

MAX_STEPS = 1 << 24
"""46 hours at 100 Hz: bounds what a hostile file can ask for."""
HOP_UNIT, MAX_HOP_CODE = 4, 255
"""A hop length of 4, 8 ... 1020 samples takes one byte; code 0 says that it follows as a varint."""
_LIMITS = {"sample_rate": (1 << 24) - 1, "hop_length": (1 << 16) - 1, "token_bits": 24, "stride": MAX_STRIDE}

_ALPHABET = "\0abcdefghijklmnopqrstuvwxyz0123456789.-"
_BASE = 40
_MODEL_ID = re.compile(rf"([a-z0-9.\-]{{1,{MAX_NAME_LENGTH}}}):([0-9a-f]{{8}})")
_NAME_BYTES, _FINGERPRINT_BYTES = 6, 4

_MASK_CODED, _TOKENS_CODED, _FIXED_RATE = 1, 2, 4


@dataclass(frozen=True)
class Header:
    """Everything about an utterance but its mask and codes."""

    layout: Layout
    num_samples: int
    model_id: str
    mask_bytes: int | None = None
    """Length of the range coded mask; None if the mask is in fixed width or absent."""
    tokens_coded: bool = False

    def __post_init__(self) -> None:
        check_origin(self.model_id, self.layout)
        if not 1 <= self.num_samples <= MAX_STEPS * self.layout.hop_length:
            raise BitstreamError(
                f"num_samples = {self.num_samples}; allowed in a file with hops of {self.layout.hop_length}: "
                f"1 ... {MAX_STEPS * self.layout.hop_length}"
            )

    @property
    def steps(self) -> int:
        return self.layout.steps(self.num_samples)

    @property
    def mode(self) -> Literal["compact", "raw"]:
        return "compact" if self.tokens_coded or self.mask_bytes is not None else "raw"

    def to_bytes(self) -> bytes:
        """Magic to the last field."""
        layout, parts = self.layout, [MAGIC]
        flags = (self.mask_bytes is not None) * _MASK_CODED
        flags |= self.tokens_coded * _TOKENS_CODED | (layout.stride is not None) * _FIXED_RATE
        parts += [bytes([VERSION << 4 | flags]), pack_origin(self.model_id, layout), pack_varint(self.num_samples)]
        if layout.stride is not None:
            parts += [bytes([layout.stride])]
        if self.mask_bytes is not None:
            parts += [pack_varint(self.mask_bytes)]
        return b"".join(parts)

    @classmethod
    def read(cls, stream: BytesIO) -> Header:
        """Inverse of `to_bytes`, of a file that `check_signature` has passed; `stream` then stands at the payload."""
        stream.seek(len(MAGIC))
        flags = read_byte(stream) & 0xF
        mask_coded, fixed_rate = bool(flags & _MASK_CODED), bool(flags & _FIXED_RATE)
        if flags > 7 or (mask_coded and fixed_rate):
            raise BitstreamError(f"unknown combination of flags {flags:#x}")
        model_id, layout = read_origin(stream)
        num_samples = read_varint(stream)
        layout = replace(layout, stride=read_byte(stream) if fixed_rate else None)
        mask_bytes = read_varint(stream) if mask_coded else None
        return cls(layout, num_samples, model_id, mask_bytes, bool(flags & _TOKENS_CODED))


def check_signature(data: bytes) -> None:
    """Refuse what is not a `.dtm` file, or is of a version that cannot be read."""
    if data[: len(MAGIC)] != MAGIC:
        raise BitstreamError(f"not a .dtm file: it starts with {bytes(data[: len(MAGIC)])!r}, not {MAGIC!r}")
    version = data[len(MAGIC)] >> 4 if len(data) > len(MAGIC) else VERSION
    if version != VERSION:
        reader = f"dtm-codec {RELEASES[version]} reads it" if version in RELEASES else "a newer release may read it"
        raise BitstreamError(f"a .dtm file of version {version}: {reader}; this release reads version {VERSION}")


def check_origin(model_id: str, layout: Layout) -> None:
    """Refuse a model id or layout that cannot be written."""
    for name, most in _LIMITS.items():
        value = getattr(layout, name)
        if value is not None and not 1 <= value <= most:
            raise BitstreamError(f"{name} = {value}; allowed in a file: 1 ... {most}")
    if _MODEL_ID.fullmatch(model_id) is None:
        raise BitstreamError(
            f"model id {model_id!r}; allowed: 1 to {MAX_NAME_LENGTH} of a-z, 0-9, '.', '-', "
            "then ':' and 8 hexadecimal digits"
        )


def pack_origin(model_id: str, layout: Layout) -> bytes:
    """Which model, sample rate, width of a token and hop length; the stride stands elsewhere."""
    rate_code = SAMPLE_RATES.index(layout.sample_rate) + 1 if layout.sample_rate in SAMPLE_RATES else 0
    hop_code, rest = divmod(layout.hop_length, HOP_UNIT)
    hop_code = hop_code if rest == 0 and hop_code <= MAX_HOP_CODE else 0
    parts = [_pack_model_id(model_id), bytes([rate_code << 5 | layout.token_bits, hop_code])]
    if rate_code == 0:
        parts += [pack_varint(layout.sample_rate)]
    if hop_code == 0:
        parts += [pack_varint(layout.hop_length)]
    return b"".join(parts)


def read_origin(stream: BytesIO) -> tuple[str, Layout]:
    """Inverse of `pack_origin`."""
    model_id = _unpack_model_id(_take(stream, _NAME_BYTES + _FINGERPRINT_BYTES))
    rate_code, token_bits = divmod(read_byte(stream), 32)
    hop_code = read_byte(stream)
    sample_rate = SAMPLE_RATES[rate_code - 1] if rate_code else read_varint(stream)
    hop_length = HOP_UNIT * hop_code if hop_code else read_varint(stream)
    return model_id, Layout(sample_rate, hop_length, token_bits, None)


def _take(stream: BytesIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise BitstreamError(f"cut off in the header, after {stream.tell()} bytes")
    return data


def read_byte(stream: BytesIO) -> int:
    return _take(stream, 1)[0]


def pack_varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the high bit says that more follow."""
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def read_varint(stream: BytesIO) -> int:
    """Up to six bytes. The last byte is never 0, except for the number 0 itself."""
    value = 0
    for shift in range(0, 42, 7):
        byte = read_byte(stream)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                break
            return value
    raise BitstreamError(f"a number that is too long, at byte {stream.tell()}")


def _pack_model_id(model_id: str) -> bytes:
    """Nine letters to the base 40, the first the most significant, then the fingerprint."""
    name, fingerprint = model_id.split(":")
    number = 0
    for letter in name.ljust(MAX_NAME_LENGTH, _ALPHABET[0]):
        number = number * _BASE + _ALPHABET.index(letter)
    return number.to_bytes(_NAME_BYTES, "big") + bytes.fromhex(fingerprint)


def _unpack_model_id(data: bytes) -> str:
    number = int.from_bytes(data[:_NAME_BYTES], "big")
    letters = []
    for _ in range(MAX_NAME_LENGTH):
        number, index = divmod(number, _BASE)
        letters.append(_ALPHABET[index] if index < len(_ALPHABET) else "?")
    name = "".join(reversed(letters)).rstrip(_ALPHABET[0])
    return f"{name if number == 0 else '?'}:{data[_NAME_BYTES:].hex()}"
