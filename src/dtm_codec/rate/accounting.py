"""What an utterance costs (paper Section 3.4, Eq. 5): B_total = f_tok b + p.

Counted as whole bits of whole utterances; a rate of a set is total bits over total duration. Position costs one bit
a Stage-1 step at a variable rate and nothing at a fixed one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..encoded import Encoded
from ..errors import RateError

DurationCode = Literal["codecslime", "varstok"]


@dataclass(frozen=True)
class Bits:
    """Bits of one or more utterances."""

    content: int
    """Tokens x bits a token."""
    position: int
    """The keep mask."""

    @property
    def total(self) -> int:
        """Everything that is sent."""
        return self.content + self.position


def count(encoded: Encoded) -> Bits:
    """Bits of one utterance, as the paper counts them."""
    return Bits(
        content=encoded.codes.size * encoded.layout.token_bits,
        position=0 if encoded.layout.stride is not None else encoded.mask.size,
    )


@dataclass(frozen=True)
class Rates:
    """What a second of speech costs, over one utterance or a set."""

    content_bps: float
    position_bps: float
    token_rate: float
    """f_tok, tokens a second."""
    keep_ratio: float
    """r, tokens per Stage-1 step."""

    @property
    def total_bps(self) -> float:
        """B_total of Eq. 5."""
        return self.content_bps + self.position_bps


def rates(encoded: Sequence[Encoded]) -> Rates:
    """Rates of a set: total bits / total duration, not a mean over utterances."""
    if not encoded:
        raise RateError("the rate of 0 utterances; allowed: 1 or more")
    bits = [count(utterance) for utterance in encoded]
    seconds = math.fsum(utterance.duration_s for utterance in encoded)
    tokens = sum(utterance.codes.size for utterance in encoded)
    return Rates(
        content_bps=sum(b.content for b in bits) / seconds,
        position_bps=sum(b.position for b in bits) / seconds,
        token_rate=tokens / seconds,
        keep_ratio=tokens / sum(utterance.mask.size for utterance in encoded),
    )


def duration_code_bits(tokens: int, s_max: int, code: DurationCode) -> float:
    """Bits of timing if durations were sent with the tokens instead of a mask, for comparison.

    CodecSlime sends ceil(log2 S_max) bits a token; VARSTok's index of |C| x S_max entries holds log2 S_max more.
    """
    if s_max < 1:
        raise RateError(f"s_max = {s_max}; allowed: >= 1")
    return tokens * (float((s_max - 1).bit_length()) if code == "codecslime" else math.log2(s_max))
