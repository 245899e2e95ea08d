"""Token statistics of a corpus: which codes precede alike, and how much to trust their counts.

A code's successor is predicted by the code's class. Classes start as k-means clusters of the codebook's vectors (or at
random) and move each code to the class that predicts its own successors best. Counts of a class are smoothed towards
those of all codes; number of classes and amount of smoothing are those that code held-out sequences best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError

Counts = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]

MAX_CLASSES = 256
"""A class number is a byte."""
HELD_OUT = 10
"""Every tenth sequence chooses, the others are counted."""
SMOOTHING = (1 / 16, 1 / 4, 1, 4)
"""Weight of the common distribution in each class, in pseudo-counts a code."""
WORTHWHILE = 0.995
"""More classes have to save half a percent: each costs a table in the model's file."""
REFINEMENTS = 8


def fit_counts(
    sequences: Iterable[npt.NDArray[np.int64]],
    codebook_size: int,
    codebook: npt.NDArray[Any] | None,
    classes: Sequence[int],
) -> tuple[Counts, Classes]:
    """Smoothed counts (C, V) and class of each code (V,)."""
    corpus = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    corpus = [sequence for sequence in corpus if sequence.size]
    if not corpus:
        raise ModelError("token statistics of 0 tokens; allowed: 1 or more")
    least, most = min(int(s.min()) for s in corpus), max(int(s.max()) for s in corpus)
    if least < 0 or most >= codebook_size:
        raise ModelError(f"codes {least} ... {most}; allowed: 0 ... {codebook_size - 1}")
    if not classes or min(classes) < 1 or max(classes) > MAX_CLASSES:
        raise ModelError(f"classes = {list(classes)}; allowed: 1 ... {MAX_CLASSES}")
    number, smoothing = _choose(corpus, codebook_size, codebook, classes)
    everything = _Pairs(corpus, codebook_size)
    class_of = everything.classes(number, codebook)
    return everything.rows(class_of, number, smoothing), class_of


def _choose(
    corpus: Sequence[npt.NDArray[np.int64]],
    codebook_size: int,
    codebook: npt.NDArray[Any] | None,
    classes: Sequence[int],
) -> tuple[int, float]:
    """Number of classes and smoothing that code held-out sequences best."""
    number, smoothing, least = min(classes), 1.0, np.inf
    if len(corpus) < 2:
        return number, smoothing
    held_out = _Pairs(corpus[::HELD_OUT], codebook_size)
    counted = _Pairs([s for i, s in enumerate(corpus) if i % HELD_OUT], codebook_size)
    for candidate in sorted(set(classes)):
        class_of = counted.classes(candidate, codebook)
        for weight in SMOOTHING:
            cost = held_out.bits(counted.rows(class_of, candidate, weight), class_of)
            if cost < least * (WORTHWHILE if candidate > number else 1):
                number, smoothing, least = candidate, weight, cost
    return number, smoothing


class _Pairs:
    """Which code follows which, how often."""

    def __init__(self, corpus: Sequence[npt.NDArray[np.int64]], codebook_size: int) -> None:
        self.size = codebook_size
        pairs = np.concatenate([sequence[:-1] * codebook_size + sequence[1:] for sequence in corpus])
        keys, self.count = np.unique(pairs, return_counts=True)
        self.code, self.successor = keys // codebook_size, keys % codebook_size
        occurrences = np.bincount(np.concatenate(corpus), minlength=codebook_size)
        self.common = (occurrences + 0.5) / (occurrences.sum() + 0.5 * codebook_size)
        self.first = np.array([sequence[0] for sequence in corpus])

    def rows(self, class_of: Classes, number: int, smoothing: float) -> Counts:
        """Smoothed distribution of successors of each class. (C, V)"""
        index = class_of[self.code] * self.size + self.successor
        counts = np.bincount(index, self.count, number * self.size).reshape(number, self.size)
        counts[0] += np.bincount(self.first, minlength=self.size)  # the first token follows class 0
        counts += smoothing * self.size * self.common
        rows: Counts = counts / counts.sum(axis=1, keepdims=True)
        return rows

    def bits(self, rows: Counts, class_of: Classes) -> float:
        """What these pairs cost under `rows`."""
        return -float((self.count * np.log2(rows[class_of[self.code], self.successor])).sum())

    def classes(self, number: int, codebook: npt.NDArray[Any] | None) -> Classes:
        """Class of each code, (V,); class 0 holds the most tokens."""
        generator = np.random.default_rng(0)
        if codebook is None or number == 1:
            class_of = generator.integers(number, size=self.size)
        else:
            class_of = _clusters(np.asarray(codebook, dtype=np.float64), number, generator)
        for _ in range(REFINEMENTS if number > 1 else 0):
            cost = np.log2(self.rows(class_of, number, SMOOTHING[1]))
            gain = [np.bincount(self.code, self.count * row[self.successor], self.size) for row in cost]
            seen = np.bincount(self.code, minlength=self.size) > 0
            moved = np.where(seen, np.argmax(gain, axis=0), class_of)
            if (moved == class_of).all():
                break
            class_of = moved
        order = np.argsort(-np.bincount(class_of, self.common, number), kind="stable")
        ranks: Classes = np.argsort(order)[class_of]
        return ranks


def _clusters(vectors: Counts, number: int, generator: np.random.Generator) -> Classes:
    """k-means of the codebook. (V, D) -> (V,)"""
    centres = vectors[generator.choice(len(vectors), number, replace=number > len(vectors))]
    class_of = np.zeros(len(vectors), dtype=np.int64)
    for _ in range(20):
        class_of = np.argmax(vectors @ centres.T - (centres**2).sum(axis=1) / 2, axis=1)
        members = np.bincount(class_of, minlength=number)
        sums = np.zeros_like(centres)
        np.add.at(sums, class_of, vectors)
        centres = np.where(members[:, None] > 0, sums / np.maximum(members, 1)[:, None], centres)
    return class_of
