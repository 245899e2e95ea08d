"""An utterance's tokens and durations as one sequence for a language model, and back without loss.

Three schemes of the literature (paper Section 2.2). Durations have a cap, so that vocabularies are finite; a span above
it is split into pieces of the cap and a rest. Splitting alone would lose whether two equal codes were one
token or two, so each scheme says it in its own way:

* `interleaved`: token, duration, token, duration, ... in one vocabulary, codes first. A long span has several
  durations after its token; they add up.
* `joint`: VARSTok's index (d - 1) K + k. A long span repeats its code, with d = cap in all pieces but the last. Where
  two tokens of equal code meet and the first one ends with d = cap, the symbol cap x K stands between them.
* `parallel`: two streams of equal length, codes and durations. In the pieces of a long span after the first, the
  code is K, "hold".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from .errors import CorpusError

SchemeName = Literal["interleaved", "joint", "parallel"]
Integers: TypeAlias = npt.NDArray[np.int64]

DEFAULT_MAX_DURATION = {"interleaved": 64, "joint": 4, "parallel": 64}
"""VARSTok's cap for the joint index, whose vocabulary it multiplies; elsewhere one that speech rarely reaches."""


@dataclass(frozen=True)
class Scheme:
    """How tokens and durations become symbols; both directions need the same one."""

    name: SchemeName
    codebook_size: int = 16_384
    """K, as `metadata.json` of a tokenized corpus says."""
    max_duration: int | None = None
    """Cap in Stage-1 steps; None takes the scheme's default."""

    def __post_init__(self) -> None:
        if self.name not in get_args(SchemeName):
            raise CorpusError(f"scheme {self.name!r}; allowed: {', '.join(get_args(SchemeName))}")
        if self.codebook_size < 1:
            raise CorpusError(f"codebook_size = {self.codebook_size}; allowed: >= 1")
        if self.max_duration is not None and self.max_duration < 1:
            raise CorpusError(f"max_duration = {self.max_duration}; allowed: >= 1")

    @property
    def cap(self) -> int:
        """The longest duration of one symbol."""
        return self.max_duration if self.max_duration is not None else DEFAULT_MAX_DURATION[self.name]

    @property
    def vocabulary_sizes(self) -> tuple[int, ...]:
        """Number of symbols of each stream: one stream, or two for `parallel`."""
        if self.name == "interleaved":
            return (self.codebook_size + self.cap,)
        if self.name == "joint":
            return (self.cap * self.codebook_size + 1,)
        return (self.codebook_size + 1, self.cap)


def flatten(tokens: npt.ArrayLike, durations: npt.ArrayLike, scheme: SchemeName | Scheme) -> Integers:
    """The symbols of one utterance. tokens, durations: (K,) -> (L,), or (2, L) for `parallel`."""
    scheme = Scheme(scheme) if isinstance(scheme, str) else scheme
    codes, spans = _integers(tokens, "tokens"), _integers(durations, "durations")
    if codes.ndim != 1 or codes.shape != spans.shape:
        raise CorpusError(f"tokens of shape {codes.shape}, durations of {spans.shape}; allowed: (K,) and (K,)")
    _check_range(codes, 0, scheme.codebook_size - 1, "tokens")
    _check_range(spans, 1, None, "durations")
    counts = -(-spans // scheme.cap)
    starts = np.cumsum(counts) - counts
    pieces = np.full(counts.sum(), scheme.cap, np.int64)  # (P,) durations, those of split spans in a row
    pieces[starts + counts - 1] = spans - (counts - 1) * scheme.cap
    if scheme.name == "interleaved":
        return np.insert(pieces - 1 + scheme.codebook_size, starts, codes)
    repeated = np.repeat(codes, counts)
    if scheme.name == "joint":
        symbols = (pieces - 1) * scheme.codebook_size + repeated
        ambiguous = (codes[1:] == codes[:-1]) & (spans[:-1] % scheme.cap == 0)
        return np.insert(symbols, starts[1:][ambiguous], scheme.cap * scheme.codebook_size)
    held = np.full_like(repeated, scheme.codebook_size)
    held[starts] = codes
    return np.stack([held, pieces - 1])


def unflatten(symbols: npt.ArrayLike, scheme: SchemeName | Scheme) -> tuple[Integers, Integers]:
    """Tokens (K,) and durations (K,) of the symbols that `flatten` gave with the same scheme."""
    scheme = Scheme(scheme) if isinstance(scheme, str) else scheme
    sequence, streams = _integers(symbols, "symbols"), len(scheme.vocabulary_sizes)
    if sequence.ndim != streams or (streams == 2 and len(sequence) != 2):
        shape = "(2, L)" if streams == 2 else "(L,)"
        raise CorpusError(f"symbols of shape {sequence.shape}; allowed: {shape} for {scheme.name!r}")
    for stream, size in zip(np.atleast_2d(sequence), scheme.vocabulary_sizes, strict=True):
        _check_range(stream, 0, size - 1, f"symbols of {scheme.name!r}")
    if scheme.name == "interleaved":
        is_code = sequence < scheme.codebook_size
        if sequence.size and (not is_code[0] or is_code[-1] or (is_code[1:] & is_code[:-1]).any()):
            raise CorpusError("an interleaved sequence must begin with a token, and durations must follow each token")
        pieces = sequence[~is_code] - scheme.codebook_size + 1
        return sequence[is_code], _sums(pieces, np.flatnonzero(is_code) - np.arange(is_code.sum()))
    if scheme.name == "joint":
        is_mark = sequence == scheme.cap * scheme.codebook_size
        marked = np.flatnonzero(is_mark) - np.arange(is_mark.sum())  # pieces that a mark says begin a token
        quotients, codes = np.divmod(sequence[~is_mark], scheme.codebook_size)
        begins = np.ones(codes.size + 1, np.bool_)  # one more than pieces: a mark may stand at the end
        begins[1:-1] = (codes[1:] != codes[:-1]) | (quotients[:-1] != scheme.cap - 1)
        begins[marked] = True
        starts = np.flatnonzero(begins[:-1])
        return codes[starts], _sums(quotients + 1, starts)
    starts = np.flatnonzero(sequence[0] < scheme.codebook_size)
    if sequence.size and (not starts.size or starts[0]):
        raise CorpusError("a parallel sequence must begin with a token, not with the hold symbol")
    return sequence[0][starts], _sums(sequence[1] + 1, starts)


def _sums(pieces: Integers, starts: Integers) -> Integers:
    """Sums of the runs of `pieces` that begin at `starts`."""
    return np.add.reduceat(pieces, starts) if starts.size else np.zeros(0, np.int64)


def _integers(values: npt.ArrayLike, name: str) -> Integers:
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise CorpusError(f"{name} of type {array.dtype}; allowed: whole numbers")
    return array.astype(np.int64)


def _check_range(values: Integers, low: int, high: int | None, name: str) -> None:
    if values.size and (values.min() < low or (high is not None and values.max() > high)):
        allowed = f"{low} ... {high}" if high is not None else f">= {low}"
        raise CorpusError(f"{name} {values.min()} ... {values.max()}; allowed: {allowed}")
