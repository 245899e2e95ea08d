"""Fixed-width bit strings, most significant bit first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BitString = npt.NDArray[np.uint8]


def from_codes(codes: npt.NDArray[np.int64], width: int) -> BitString:
    """The bits of every code. (K,) -> (K x width,) of 0 and 1."""
    bits = np.empty((codes.size, width), dtype=np.uint8)
    for column in range(width):  # column by column: no int64 array of K x width
        bits[:, column] = (codes >> (width - 1 - column)) & 1
    return bits.reshape(-1)


def to_codes(bits: BitString, width: int) -> npt.NDArray[np.int64]:
    """Inverse of `from_codes`. (K x width,) -> (K,)."""
    codes = np.zeros(bits.size // width, dtype=np.int64)
    for column in bits.reshape(-1, width).T:
        codes = (codes << 1) | column
    return codes


def pack(*parts: BitString) -> bytes:
    """Bit strings one after the other, filled up to a whole byte with zeros."""
    return np.packbits(np.concatenate(parts)).tobytes() if parts else b""


def unpack(data: bytes, start: int, count: int) -> BitString:
    """`count` bits of `data` from bit `start` on; the caller has checked that they are there."""
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=start + count)[start:]


def packed_bytes(count: int) -> int:
    """Whole bytes that hold `count` bits."""
    return -(-count // 8)
