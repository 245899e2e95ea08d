"""The codes, range coded under token statistics that ship with a model.

VQ codes are neither equally frequent nor independent. `TokenModel` holds a table of integer frequencies for each class
of the code before; one class is plain order 0. The tables belong to the model's identity, so files name no statistics:
codecs register theirs when they load.
"""

from __future__ import annotations

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


@dataclass(frozen=True, eq=False)
class TokenModel:
    """How often each code follows each class of codes."""

    frequencies: npt.NDArray[np.int32]
    """(C, V) rows sum to 2^24, entries are 1 ... 15/16 of that."""
    class_of: npt.NDArray[np.uint8]
    """(V,) class of each code; the first token of an utterance follows class 0."""

    def __post_init__(self) -> None:
        shape = self.frequencies.shape
        if len(shape) != 2 or not 1 <= shape[0] <= MAX_CLASSES or not 2 <= shape[1] <= MAX_CODEBOOK_SIZE:
            raise ModelError(f"token frequencies of shape {shape}; allowed: (1 ... {MAX_CLASSES}, 2 ... 2^20)")
        if self.class_of.shape != shape[1:] or self.class_of.max() >= shape[0]:
            raise ModelError(f"token classes of shape {self.class_of.shape} with frequencies of shape {shape}")
        least, most = self.frequencies.min(), self.frequencies.max()
        if least < 1 or most > MAX_FREQUENCY:
            raise ModelError(f"token frequencies {least} ... {most}; allowed: 1 ... {MAX_FREQUENCY}")
        if (self.frequencies.sum(axis=1, dtype=np.int64) != range_coder.TOTAL).any():
            raise ModelError(f"token frequencies do not sum to {range_coder.TOTAL}")

    @property
    def codebook_size(self) -> int:
        """V."""
        return int(self.class_of.size)

    @property
    def token_bits(self) -> int:
        """Bits of one code in fixed width; a stream's layout has to agree."""
        return (self.codebook_size - 1).bit_length()

    @classmethod
    def from_counts(cls, counts: npt.ArrayLike, class_of: npt.ArrayLike | None = None) -> TokenModel:
        """Frequencies in proportion to counts or probabilities, (C, V) or (V,) for one class."""
        rows = np.atleast_2d(np.asarray(counts, dtype=np.float64))
        if rows.shape[1] < 2 or not np.isfinite(rows).all() or rows.min() < 0 or rows.sum(axis=1).min() <= 0:
            raise ModelError(f"token counts of shape {rows.shape}; allowed: >= 0, 2 codes or more, no empty row")
        classes = np.zeros(rows.shape[1]) if class_of is None else np.asarray(class_of)
        return cls(np.stack([_frequencies(row) for row in rows]), classes.astype(np.uint8))

    @classmethod
    def fit(
        cls,
        sequences: Iterable[npt.NDArray[np.int64]],
        codebook_size: int,
        codebook: npt.NDArray[Any] | None = None,
        classes: Sequence[int] = (1, 4, 16, 64),
    ) -> TokenModel:
        """Statistics of a corpus of code sequences; `codebook` (V, D) helps to find classes of like codes.

        The number of classes is the one of `classes` that codes a tenth of the sequences best when fitted to the rest.
        """
        return cls.from_counts(*fit_counts(sequences, codebook_size, codebook, classes))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """For a file of tensors."""
        return {"frequencies": self.frequencies, "class_of": self.class_of}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> TokenModel:
        """Inverse of `to_arrays`."""
        if set(arrays) != {"frequencies", "class_of"}:
            raise ModelError(f"token statistics with arrays {sorted(arrays)}; allowed: class_of, frequencies")
        return cls(arrays["frequencies"].astype(np.int32), arrays["class_of"].astype(np.uint8))

    @cached_property
    def tables(self) -> list[Any]:
        """One for each class, for the range coder."""
        return [range_coder.table(row) for row in self.frequencies]


def _frequencies(row: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """(V,) >= 0 -> (V,) integers that sum to 2^24, each within its limits; fractions go to the largest."""
    share = row / row.sum()
    top = int(share.argmax())
    limit = 7 / 8  # below MAX_FREQUENCY, so that rounding cannot pass it
    if share[top] > limit:
        share += 1e-9
        share[top] = 0
        share *= (1 - limit) / share.sum()
        share[top] = limit
    exact = share * (range_coder.TOTAL - row.size)
    frequencies: npt.NDArray[np.int32] = np.floor(exact).astype(np.int32) + 1
    missing = range_coder.TOTAL - int(frequencies.sum())
    frequencies[np.argsort(np.floor(exact) - exact, kind="stable")[:missing]] += 1
    return frequencies


def encode(codes: npt.NDArray[np.int64], model: TokenModel) -> bytes:
    """(K,) codes -> bytes."""
    if codes.max() >= model.codebook_size:
        raise BitstreamError(f"code {codes.max()}; the token statistics know 0 ... {model.codebook_size - 1}")
    encoder, tables = range_coder.Encoder(), model.tables
    contexts = [0, *model.class_of[codes[:-1]].tolist()]
    for code, context in zip(codes.tolist(), contexts, strict=True):
        encoder.encode(code, tables[context])
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
    tables, class_of = model.tables, model.class_of.tolist()
    context = 0
    with range_coder.decoding(data) as read:
        for index in range(tokens):
            codes[index] = code = read(tables[context])
            context = class_of[code]
    return codes


_registered: dict[str, TokenModel] = {}


def register(model_id: str, token_model: TokenModel) -> None:
    """Make a model's statistics known, so that its files can be written compactly and read."""
    _registered[model_id] = token_model


def lookup(model_id: str) -> TokenModel | None:
    """The statistics that `model_id` has registered, if any."""
    return _registered.get(model_id)
