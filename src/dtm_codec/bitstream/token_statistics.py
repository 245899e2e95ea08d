"""Token statistics of a corpus: which codes are alike, and which of these follow which.

Classes are k-means clusters of the codebook's vectors. Number of classes and smoothing of their transitions are those
that code held-out sequences best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError

Counts = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int64]

MAX_CLASSES = 1024
"""Each costs a row and a column in the model's file."""
HELD_OUT = 10
"""Every tenth sequence chooses, the others are counted."""
SMOOTHING = (10.0, 30.0, 100.0, 300.0)
"""Pseudo-counts of a row of transitions, spread as all tokens are."""
UNSEEN = 0.5
"""Pseudo-count of every code."""
WORTHWHILE = 0.995
"""More classes have to save half a percent: less may be luck, and tables take space in the model's file."""


def fit_counts(
    sequences: Iterable[Codes], codebook_size: int, codebook: npt.NDArray[Any] | None, classes: Sequence[int]
) -> tuple[Counts, Counts, Classes]:
    """Smoothed counts of codes (V,) and of pairs of classes (C, C), and the class of each code (V,)."""
    corpus = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    corpus = [sequence for sequence in corpus if sequence.size]
    if not corpus:
        raise ModelError("token statistics of 0 tokens; allowed: 1 or more")
    least, most = min(int(s.min()) for s in corpus), max(int(s.max()) for s in corpus)
    if least < 0 or most >= codebook_size:
        raise ModelError(f"codes {least} ... {most}; allowed: 0 ... {codebook_size - 1}")
    if not classes or min(classes) < 1 or max(classes) > MAX_CLASSES:
        raise ModelError(f"classes = {list(classes)}; allowed: 1 ... {MAX_CLASSES}")
    if codebook is not None and len(codebook) != codebook_size:
        raise ModelError(f"a codebook of {len(codebook)} vectors; allowed: {codebook_size}")
    numbers = [1] if codebook is None or len(corpus) < 2 else sorted(set(classes))
    counted = [sequence for index, sequence in enumerate(corpus) if index % HELD_OUT] or corpus
    best, least_bits = (np.zeros(codebook_size, dtype=np.int64), SMOOTHING[0]), np.inf
    for number in numbers:
        class_of = _clusters(codebook, number) if codebook is not None else best[0]
        for smoothing in SMOOTHING:
            bits = _bits(corpus[::HELD_OUT], *_count(counted, class_of, smoothing), class_of)
            if bits < least_bits * (WORTHWHILE if number > best[0].max() + 1 else 1):
                best, least_bits = (class_of, smoothing), bits
    class_of, smoothing = best
    return *_count(corpus, class_of, smoothing), class_of


def _count(corpus: Sequence[Codes], class_of: Classes, smoothing: float) -> tuple[Counts, Counts]:
    """Codes (V,) and pairs of classes (C, C), smoothed; the first token follows class 0."""
    number = int(class_of.max()) + 1
    occurrences = np.bincount(np.concatenate(corpus), minlength=class_of.size).astype(np.float64) + UNSEEN
    pairs = np.concatenate([_before(sequence, class_of) * number + class_of[sequence] for sequence in corpus])
    transitions = np.bincount(pairs, minlength=number**2).reshape(number, number)
    shares = np.bincount(class_of, occurrences) / occurrences.sum()
    return occurrences, transitions + smoothing * shares


def _before(sequence: Codes, class_of: Classes) -> Classes:
    return np.concatenate([[0], class_of[sequence[:-1]]])


def _bits(corpus: Sequence[Codes], occurrences: Counts, transitions: Counts, class_of: Classes) -> float:
    """What sequences cost under these counts."""
    rows = np.log2(transitions / transitions.sum(axis=1, keepdims=True))
    members = np.log2(occurrences / np.bincount(class_of, occurrences)[class_of])
    return -sum(float(rows[_before(s, class_of), class_of[s]].sum() + members[s].sum()) for s in corpus)


def _clusters(codebook: npt.NDArray[Any], number: int) -> Classes:
    """k-means of the codebook's vectors, without empty clusters. (V, D) -> (V,)"""
    vectors = np.asarray(codebook, dtype=np.float64)
    number = min(number, len(vectors))
    centres = vectors[np.random.default_rng(0).choice(len(vectors), number, replace=False)]
    class_of = np.zeros(len(vectors), dtype=np.int64)
    for _ in range(20):
        class_of = np.argmax(vectors @ centres.T - (centres**2).sum(axis=1) / 2, axis=1)
        class_of = np.unique(class_of, return_inverse=True)[1]
        sums = np.stack([np.bincount(class_of, column) for column in vectors.T], axis=1)
        centres = sums / np.bincount(class_of)[:, None]
    return class_of
