"""The codes, range coded under token statistics that ship with a model.

VQ codes are neither equally frequent nor independent: each says something about the next. `TokenModel` sorts
codes into classes and codes each token in two steps: its class, given the class of the token before, then which of
the class it is. That takes C x C + V numbers, few enough to be learned from an hour of speech; on codes of a trained
model they predicted held-out speech as well as C x V numbers did.

A model folder holds them beside the weights. Files carry a fingerprint of the statistics that they need.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BitstreamError, ModelError
from . import range_coder
from .token_statistics import MAX_CLASSES, fit_counts

MAX_CODEBOOK_SIZE = 1 << 20
"""Larger codebooks are sent in fixed width."""
MAX_FREQUENCY = range_coder.TOTAL // 16 * 15
"""No token costs less than log2(16/15) = 0.0931 bits ..."""
MAX_TOKENS_PER_BYTE = 86
"""... so that a byte holds at most 8 / 0.0931 tokens."""
MAX_FINGERPRINT = 0xFFFF


@dataclass(frozen=True, eq=False)
class TokenModel:
    """How often each class of codes follows each, and each code occurs in its class.

    The frequencies of one choice sum to 2^24 and are 1 ... 15/16 of it, unless there is nothing to choose.
    """

    class_of: npt.NDArray[np.int16]
    """(V,) class of each code."""
    transitions: npt.NDArray[np.int32]
    """(C, C) row: class of the token before, 0 for the first token; column: class of the token."""
    members: npt.NDArray[np.int32]
    """(V,) frequency of each code in its class."""

    def __post_init__(self) -> None:
        size, classes = self.class_of.size, len(self.transitions)
        if not 2 <= size <= MAX_CODEBOOK_SIZE or not 1 <= classes <= MAX_CLASSES:
            raise ModelError(
                f"token statistics of {size} codes in {classes} classes; "
                f"allowed: 2 ... {MAX_CODEBOOK_SIZE} in 1 ... {MAX_CLASSES}"
            )
        shapes = (self.class_of.shape, self.transitions.shape, self.members.shape)
        if shapes != ((size,), (classes, classes), (size,)):
            raise ModelError(f"token statistics of shapes {shapes}; allowed: (V,), (C, C), (V,)")
        if not np.array_equal(np.unique(self.class_of), np.arange(classes)):
            raise ModelError(f"codes in {np.unique(self.class_of).size} classes; the token statistics have {classes}")
        for row in (*self.transitions, *(self.members[codes] for codes in self.codes_of)):
            most = MAX_FREQUENCY if row.size > 1 else range_coder.TOTAL
            if row.min() < 1 or row.max() > most or row.sum(dtype=np.int64) != range_coder.TOTAL:
                raise ModelError(
                    f"token frequencies {row.min()} ... {row.max()} with sum {row.sum(dtype=np.int64)}; "
                    f"allowed: 1 ... {most} with sum {range_coder.TOTAL}"
                )

    @property
    def codebook_size(self) -> int:
        return int(self.class_of.size)

    @property
    def token_bits(self) -> int:
        """Bits of one code in fixed width; a stream's layout has to agree."""
        return (self.codebook_size - 1).bit_length()

    @classmethod
    def from_counts(
        cls,
        occurrences: npt.ArrayLike,
        transitions: npt.ArrayLike | None = None,
        class_of: npt.ArrayLike | None = None,
    ) -> TokenModel:
        """Frequencies in proportion to counts of codes, (V,), and of pairs of classes, (C, C); by default one class."""
        codes = np.asarray(occurrences, dtype=np.float64)
        rows = np.asarray([[1]] if transitions is None else transitions, dtype=np.float64)
        classes = np.asarray(np.zeros(codes.shape) if class_of is None else class_of).astype(np.int16)
        if codes.shape != classes.shape or codes.ndim != 1 or rows.ndim != 2:
            raise ModelError(f"token counts of shapes {codes.shape}, {rows.shape}, {classes.shape}")
        members = np.empty(codes.shape, dtype=np.int32)
        for number in range(len(rows)):
            members[classes == number] = _frequencies(codes[classes == number])
        return cls(classes, np.stack([_frequencies(row) for row in rows]), members)

    @classmethod
    def fit(
        cls,
        sequences: Iterable[npt.NDArray[np.int64]],
        codebook_size: int,
        codebook: npt.NDArray[Any] | None = None,
        classes: Sequence[int] = (1, 16, 64, 256, 512),
    ) -> TokenModel:
        """Statistics of a corpus of code sequences.

        codebook: (V, D) vectors of the codes, whose clusters are the classes; without it there is one class.
        classes: numbers of classes to try; the one that codes held-out sequences best is taken.
        """
        return cls.from_counts(*fit_counts(sequences, codebook_size, codebook, classes))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"class_of": self.class_of, "transitions": self.transitions, "members": self.members}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> TokenModel:
        if set(arrays) != {"class_of", "transitions", "members"}:
            raise ModelError(f"token statistics with {sorted(arrays)}; allowed: class_of, members, transitions")
        return cls(
            arrays["class_of"].astype(np.int16),
            arrays["transitions"].astype(np.int32),
            arrays["members"].astype(np.int32),
        )

    @cached_property
    def fingerprint(self) -> int:
        """16 bits that differ between most statistics: of a hash over the arrays, little-endian, in the order above."""
        content = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in self.to_arrays().values())
        return int.from_bytes(hashlib.sha256(content).digest()[:2], "big")

    @cached_property
    def mean_bits(self) -> float:
        """What a token takes on average, if tokens come as often as these statistics say."""
        transitions = self.transitions / range_coder.TOTAL
        share = np.full(len(transitions), 1 / len(transitions))
        for _ in range(50):  # of each class, in the long run
            share = share @ transitions
        members = self.members / range_coder.TOTAL
        in_class = np.bincount(self.class_of, -members * np.log2(members))
        return float(share @ (-transitions * np.log2(transitions)).sum(1) + share @ in_class)

    @cached_property
    def codes_of(self) -> list[npt.NDArray[np.int64]]:
        ends = np.cumsum(np.bincount(self.class_of, minlength=len(self.transitions)))
        return np.split(np.argsort(self.class_of, kind="stable"), ends[:-1])

    @cached_property
    def rank_of(self) -> npt.NDArray[np.int64]:
        """(V,) place of each code in its class."""
        ranks = np.empty(self.codebook_size, dtype=np.int64)
        for codes in self.codes_of:
            ranks[codes] = np.arange(codes.size)
        return ranks

    @cached_property
    def class_tables(self) -> list[Any]:
        """For each class before; None where there is nothing to choose."""
        return [_table(row) for row in self.transitions]

    @cached_property
    def member_tables(self) -> list[Any]:
        """For each class; None where there is nothing to choose."""
        return [_table(self.members[codes]) for codes in self.codes_of]


def _table(frequencies: npt.NDArray[np.int32]) -> Any:
    return range_coder.table(frequencies) if frequencies.size > 1 else None


def _frequencies(counts: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """(n,) >= 0 -> (n,) integers within their limits that sum to 2^24; fractions go to the largest."""
    if counts.size == 0 or not np.isfinite(counts).all() or counts.min() < 0 or counts.sum() <= 0:
        raise ModelError(f"{counts.size} token counts with sum {counts.sum()}; allowed: >= 0, not all of them 0")
    if counts.size == 1:
        return np.array([range_coder.TOTAL], dtype=np.int32)
    share = counts / counts.sum()
    top = int(share.argmax())
    limit = 7 / 8  # below MAX_FREQUENCY, so that rounding cannot pass it
    if share[top] > limit:
        share += 1e-9
        share[top] = 0
        share *= (1 - limit) / share.sum()
        share[top] = limit
    exact = share * (range_coder.TOTAL - counts.size)
    frequencies: npt.NDArray[np.int32] = np.floor(exact).astype(np.int32) + 1
    missing = range_coder.TOTAL - int(frequencies.sum())
    frequencies[np.argsort(np.floor(exact) - exact, kind="stable")[:missing]] += 1
    return frequencies


def encode(codes: npt.NDArray[np.int64], model: TokenModel) -> bytes:
    """(K,) codes -> bytes."""
    if codes.max() >= model.codebook_size:
        raise BitstreamError(f"code {codes.max()}; the token statistics know 0 ... {model.codebook_size - 1}")
    encoder = range_coder.Encoder()
    before = 0
    for kind, rank in zip(model.class_of[codes].tolist(), model.rank_of[codes].tolist(), strict=True):
        if (class_table := model.class_tables[before]) is not None:
            encoder.encode(kind, class_table)
        if (member_table := model.member_tables[kind]) is not None:
            encoder.encode(rank, member_table)
        before = kind
    return encoder.finish()


def check_length(tokens: int, length: int) -> None:
    """Refuse more tokens than that many bytes can hold."""
    if tokens > MAX_TOKENS_PER_BYTE * length:
        raise BitstreamError(
            f"{tokens} range coded tokens in {length} bytes; allowed: at most {MAX_TOKENS_PER_BYTE * length} tokens"
        )


def decode(data: bytes, model: TokenModel, tokens: int) -> npt.NDArray[np.int64]:
    """Bytes -> (K,) codes."""
    check_length(tokens, len(data))
    codes = np.empty(tokens, dtype=np.int64)
    kind = 0
    with range_coder.decoding(data) as read:
        for index in range(tokens):
            if (class_table := model.class_tables[kind]) is not None:
                kind = read(class_table)
            member_table = model.member_tables[kind]
            codes[index] = model.codes_of[kind][0 if member_table is None else read(member_table)]
    return codes
