"""Range coding with integer frequencies that sum to 2^24: a file decodes the same on every machine, in every release.

The coder is constriction's: 32-bit words, 64-bit state. Its models take floating point weights, give each of n
symbols one of the 2^24 parts and share out the others in proportion to the weights, rounding cumulative sums down.
Handed `frequency - 1` as weights, which sum to just these others, it scales by 1 and rounds nothing: every number
is an integer that float64 holds. What remains is integer arithmetic, written out in docs/bitstream.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import constriction
import numpy as np
import numpy.typing as npt

from ..errors import BitstreamError

TOTAL = 1 << 24
"""What the frequencies of one table sum to."""

_SEAL = (1 << 32) - 1
"""constriction ends its words at the lower bound plus this much, which may carry into words it held back."""


def table(frequencies: npt.ArrayLike) -> Any:
    """Symbols 0 ... n - 1 with these frequencies, n >= 2, each >= 1, in the form that coders take."""
    weights = np.asarray(frequencies, dtype=np.int64) - 1
    assert weights.min() >= 0
    assert weights.sum() == TOTAL - weights.size
    return constriction.stream.model.Categorical(weights.astype(np.float64), perfect=False)


class Encoder:
    """Symbols in, bytes out."""

    def __init__(self) -> None:
        self._coder = constriction.stream.queue.RangeEncoder()
        self.encode: Callable[[int, Any], None] = self._coder.encode
        """encode(symbol, table)"""

    def finish(self) -> bytes:
        """The shortest bytes that decode to the symbols whatever follows them, and of these the smallest.

        No symbols give no bytes. That anything may follow bounds the symbols that a number of bytes can hold.
        """
        if self._coder.is_empty():
            return b""
        count, (lower, width) = self._coder.pos()
        words = self._coder.get_compressed()[:count].astype(">u4").tobytes()
        low = (int.from_bytes(words, "big") << 64) + (lower + _SEAL) % (1 << 64) - _SEAL
        for dropped in range(7, 2, -1):  # width is 2^32 ... 2^64, so that 3 of the last 8 bytes can always go
            shift = 8 * dropped
            value: int = -(-low >> shift)
            if (value + 1) << shift <= low + width:
                return value.to_bytes(len(words) + 8 - dropped, "big")
        raise AssertionError("unreachable")


@contextmanager
def decoding(data: bytes) -> Iterator[Callable[[Any], int]]:
    """Gives `decode(table) -> symbol`. Bytes that `Encoder` never writes may still decode to something."""
    words = np.frombuffer(data + bytes(-len(data) % 4), dtype=">u4").astype(np.uint32)
    try:
        yield constriction.stream.queue.RangeDecoder(words).decode
    except AssertionError:  # how constriction says that a value lies in no symbol's range
        raise BitstreamError(f"{len(data)} bytes that no range coder has written") from None
