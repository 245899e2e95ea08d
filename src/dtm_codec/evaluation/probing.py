"""ARCH-style probing (paper Section 4.6): a linear classifier on mean-pooled, frozen, post-VQ embeddings.

200 epochs of AdamW at 1e-3 with linear warm-up and decay; accuracy and macro-averaged F1, mean over folds. Folds are by
speaker, so that no voice is in training and test, unless the set names a split of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import DataError
from ..metrics.base import SAMPLE_RATE
from ..speech.utterance import Utterance
from .systems.ours import DTM

EPOCHS = 200
LEARNING_RATE = 1e-3
WARMUP = 0.1
"""Share of all steps."""
BATCH = 32
SEED = 0


@dataclass(frozen=True)
class ProbeScore:
    accuracy: float
    f1: float
    classes: int
    utterances: int


def embed_all(system: DTM, utterances: Sequence[Utterance], progress: Callable[[], None] | None = None) -> Tensor:
    """Mean of an utterance's quantized embeddings. -> (n, D)"""
    pooled = []
    for utterance in utterances:
        audio, _ = utterance.read(SAMPLE_RATE)
        encoded = system.codec.encode(audio, SAMPLE_RATE, selector=system.selector, **system.rate)
        pooled.append(torch.from_numpy(system.codec.embed(encoded).mean(axis=0)))
        if progress:
            progress()
    return torch.stack(pooled)


class Fold(NamedTuple):
    """Which utterances a probe is trained and tested on, (n,) each."""

    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]


def folds(utterances: Sequence[Utterance], count: int) -> list[Fold]:
    """The set's own split (label `split`: train or test, others are left out) if it has one, else folds of speakers."""
    splits = [u.value("split") for u in utterances]
    if any(splits):
        missing = {"train", "test"} - set(splits)
        if missing:
            raise DataError(f"no utterance with split={missing.pop()}; the set has {sorted({str(s) for s in splits})}")
        return [Fold(*(np.array([split == name for split in splits]) for name in ("train", "test")))]
    speakers = sorted({u.speaker or "" for u in utterances})
    if len(speakers) < 2:
        raise DataError("probing needs speakers, or a split, to keep training and test apart; this set has neither")
    order = np.random.default_rng(SEED).permutation(len(speakers))
    groups = [{speakers[i] for i in part} for part in np.array_split(order, min(count, len(speakers)))]
    masks = [np.array([(u.speaker or "") in group for u in utterances]) for group in groups]
    return [Fold(~mask, mask) for mask in masks]


def probe(features: Tensor, utterances: Sequence[Utterance], label: str, fold_count: int = 5) -> ProbeScore:
    """Train and test one linear probe per fold. features: (n, D)"""
    names = [u.value(label) for u in utterances]
    if None in names:
        raise DataError(f"{sum(n is None for n in names)} utterances have no label {label!r}")
    classes = sorted({str(name) for name in names})
    targets = torch.tensor([classes.index(str(name)) for name in names])
    scores = []
    for train, test in folds(utterances, fold_count):
        seen, held_out = torch.from_numpy(train), torch.from_numpy(test)
        predicted = _fit(features[seen], targets[seen], features[held_out], len(classes))
        scores.append(_scores(predicted, targets[held_out], len(classes)))
    accuracy, f1 = np.mean(scores, axis=0)
    return ProbeScore(100 * float(accuracy), 100 * float(f1), len(classes), len(utterances))


def _fit(features: Tensor, targets: Tensor, unseen: Tensor, classes: int) -> Tensor:
    """Predictions of a linear classifier for `unseen`. (n, D), (n,), (m, D) -> (m,)"""
    generator = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = torch.nn.Linear(features.shape[1], classes)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=LEARNING_RATE)
    total = EPOCHS * -(-len(targets) // BATCH)
    warmup = max(1, round(WARMUP * total))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (total - step) / max(1, total - warmup))
    )
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(targets), generator=generator), BATCH):
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(layer(features[batch]), targets[batch]))
            optimizer.step()
            schedule.step()
    with torch.inference_mode():
        predicted: Tensor = layer(unseen).argmax(dim=1)
    return predicted


def _scores(predicted: Tensor, targets: Tensor, classes: int) -> tuple[float, float]:
    """Accuracy, and F1 averaged over the classes that occur in the targets or predictions."""
    confusion = torch.zeros(classes, classes)
    confusion.index_put_((targets, predicted), torch.ones(len(targets)), accumulate=True)
    hits, wanted, given = confusion.diag(), confusion.sum(dim=1), confusion.sum(dim=0)
    occurs = wanted + given > 0
    f1 = 2 * hits[occurs] / (wanted + given)[occurs]
    return float(hits.sum() / len(targets)), float(f1.mean())
