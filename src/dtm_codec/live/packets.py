"""Packets for transport that loses some: docs/bitstream.md, section 7.

Three bytes before the payload say which packet it is and whether it is sound. The check starts from the model, layout
and packet length of the stream, so packets of another stream are refused although none of them says which it is of.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ..bitstream import bits
from ..bitstream.header import check_origin, pack_origin, pack_varint, read_byte, read_origin, read_varint
from ..errors import BitstreamError
from ..layout import Layout

MAGIC = b"DTS"
VERSION = 1
HEADER_BYTES = 3
SEQUENCES = 1 << 11
"""Sequence numbers count modulo this."""
MAX_STEPS = 32
"""In a packet: 40 ... 160 ms of 100 ... 200 steps a second."""
MAX_RECORD = 255
"""Bytes of a packet or start: its length is one byte where packets follow each other in a file or pipe."""

_LAST = 1 << 15
_CRC_POLYNOMIAL, _CRC_BITS = 0x80F, 12  # CRC-12 of 3GPP: finds every single error and every burst up to 12 bits
_CRC_BYTES = 4


@dataclass(frozen=True, eq=False)
class Packet:
    """Some steps of a stream."""

    sequence: int
    """0 ... SEQUENCES - 1"""
    mask: npt.NDArray[np.bool_]
    """(steps,) True = kept; a packet may keep none."""
    codes: npt.NDArray[np.int64]
    """(K,)"""
    last_samples: int | None = None
    """Of the last packet of a stream: how many samples it has."""


@dataclass(frozen=True)
class StreamFormat:
    """What all packets of a stream share."""

    model_id: str
    layout: Layout
    steps: int
    """In every packet but the last, which may have fewer."""

    def __post_init__(self) -> None:
        check_origin(self.model_id, self.layout)
        if not 1 <= self.steps <= MAX_STEPS:
            raise BitstreamError(f"{self.steps} steps a packet; allowed: 1 ... {MAX_STEPS}")
        if self.layout.stride is not None and self.steps % self.layout.stride:
            raise BitstreamError(f"{self.steps} steps a packet; allowed: a multiple of the stride {self.layout.stride}")

    @cached_property
    def start(self) -> bytes:
        """What a receiver must know before the first packet."""
        fixed_rate = self.layout.stride is not None
        data = MAGIC + bytes([VERSION << 4 | fixed_rate]) + pack_origin(self.model_id, self.layout)
        data += bytes([self.layout.stride] if self.layout.stride is not None else []) + bytes([self.steps])
        return data + zlib.crc32(data).to_bytes(_CRC_BYTES, "big")

    @classmethod
    def from_start(cls, data: bytes) -> StreamFormat:
        """Inverse of `start`; other bytes raise `BitstreamError`."""
        if data[: len(MAGIC)] != MAGIC:
            raise BitstreamError(f"not the start of a stream: {bytes(data[: len(MAGIC)])!r}, not {MAGIC!r}")
        if len(data) > MAX_RECORD or zlib.crc32(data[:-_CRC_BYTES]) != int.from_bytes(data[-_CRC_BYTES:], "big"):
            raise BitstreamError("the start of a stream is damaged: the checksum does not match")
        stream = BytesIO(data[len(MAGIC) : -_CRC_BYTES])
        kind = read_byte(stream)
        if kind >> 1 != VERSION << 3:
            allowed = f"{VERSION << 4:#x} (variable rate) or {VERSION << 4 | 1:#x} (fixed rate)"
            raise BitstreamError(f"a stream of version and flags {kind:#x}; allowed: {allowed}")
        model_id, layout = read_origin(stream)
        stride = read_byte(stream) if kind & 1 else None
        form = cls(model_id, replace(layout, stride=stride), read_byte(stream))
        if form.start != data:
            raise BitstreamError("not the bytes that a stream is started with: of another program, or forged")
        return form

    def split(self, mask: npt.NDArray[np.bool_], codes: npt.NDArray[np.int64], num_samples: int) -> Iterator[Packet]:
        """The packets of a whole utterance. mask: (N,), codes: (K,)"""
        used = 0
        for number, begin in enumerate(range(0, mask.size, self.steps)):
            own = mask[begin : begin + self.steps]
            tokens = int(own.sum())
            is_last = begin + self.steps >= mask.size
            last_samples = num_samples - begin * self.layout.hop_length if is_last else None
            yield Packet(number % SEQUENCES, own, codes[used : used + tokens], last_samples)
            used += tokens

    def join(self, packets: Sequence[Packet]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], int]:
        """Inverse of `split`, for packets of which none is missing."""
        if not packets or packets[-1].last_samples is None:
            raise BitstreamError(f"{len(packets)} packets without the last one of a stream")
        mask = np.concatenate([packet.mask for packet in packets])
        codes = np.concatenate([packet.codes for packet in packets])
        before = (len(packets) - 1) * self.steps * self.layout.hop_length
        return mask, codes, before + packets[-1].last_samples

    def write(self, packet: Packet) -> bytes:
        """One packet as it travels."""
        flags = (_LAST if packet.last_samples is not None else 0) | packet.sequence << 4
        payload = b"" if packet.last_samples is None else pack_varint(packet.last_samples)
        mask = [packet.mask.view(np.uint8)] if self.layout.stride is None else []
        payload += bits.pack(*mask, bits.from_codes(packet.codes, self.layout.token_bits))
        check = self._check(flags, payload)
        return (flags << 8 | check).to_bytes(HEADER_BYTES, "big") + payload

    def read(self, data: bytes) -> Packet:
        """Inverse of `write`; other bytes raise `BitstreamError`."""
        if not HEADER_BYTES <= len(data) <= MAX_RECORD:
            raise BitstreamError(f"a packet of {len(data)} bytes; allowed: {HEADER_BYTES} ... {MAX_RECORD}")
        head, payload = int.from_bytes(data[:HEADER_BYTES], "big"), bytes(data[HEADER_BYTES:])
        flags = head >> 8 & 0xFFF0
        if head & 0xFFF != self._check(flags, payload):
            raise BitstreamError(f"a packet that is damaged or not of this stream, of model {self.model_id!r}")
        steps, last_samples = self.steps, None
        if flags & _LAST:
            stream = BytesIO(payload)
            last_samples = read_varint(stream)
            steps, payload = self.layout.steps(last_samples), stream.read()
            if not 1 <= steps <= self.steps:
                raise BitstreamError(f"a last packet of {steps} steps; allowed: 1 ... {self.steps}")
        mask, offset = self._read_mask(payload, steps)
        tokens, width = int(mask.sum()), self.layout.token_bits
        if len(payload) != bits.packed_bytes(offset + tokens * width):
            raise BitstreamError(f"{tokens} tokens of {width} bits in a payload of {len(payload)} bytes")
        codes = bits.to_codes(bits.unpack(payload, offset, tokens * width), width)
        packet = Packet(flags >> 4 & SEQUENCES - 1, mask, codes, last_samples)
        if self.write(packet) != data:
            raise BitstreamError("not the bytes that its own content is written as: of another program, or forged")
        return packet

    def _read_mask(self, payload: bytes, steps: int) -> tuple[npt.NDArray[np.bool_], int]:
        """The keep mask, and the bits that it takes."""
        if self.layout.stride is not None:
            return self.layout.fixed_mask(steps), 0
        if len(payload) < bits.packed_bytes(steps):
            raise BitstreamError(f"a mask of {steps} steps in a payload of {len(payload)} bytes")
        return bits.unpack(payload, 0, steps).view(np.bool_), steps

    def _check(self, flags: int, payload: bytes) -> int:
        return _crc12(self._salt, flags.to_bytes(2, "big") + payload)

    @cached_property
    def _salt(self) -> int:
        return _crc12(0, self.start)


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte << _CRC_BITS - 8
        for _ in range(8):
            value = value << 1 ^ (_CRC_POLYNOMIAL if value >> _CRC_BITS - 1 else 0)
            value &= (1 << _CRC_BITS) - 1
        table.append(value)
    return table


_CRC_TABLE = _crc_table()


def _crc12(value: int, data: bytes) -> int:
    for byte in data:
        value = (value << 8 & 0xFFF) ^ _CRC_TABLE[value >> 4 ^ byte]
    return value


def write_record(stream: BinaryIO, record: bytes) -> None:
    """A start or packet into a file or pipe, behind its length."""
    stream.write(bytes([len(record)]) + record)


def read_record(stream: BinaryIO) -> bytes | None:
    """The next start or packet, or None at the end."""
    length = stream.read(1)
    if not length:
        return None
    record = stream.read(length[0])
    if len(record) < length[0]:
        raise BitstreamError(f"cut off: {len(record)} bytes of a packet of {length[0]}")
    return record
