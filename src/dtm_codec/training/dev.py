"""Scores, listening samples and a look at the mask on dev utterances, while training."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..codec import DTMCodec
from ..encoded import Encoded
from ..errors import AudioError
from ..metrics import Metric, Sample
from ..metrics.base import SAMPLE_RATE
from ..speech.audio import Samples, resample, write_audio
from .data import find_utterances

LONGEST_SECONDS = 10.0
"""Utterances are cut here: dev scores are to be had often."""

HEARD = 4
"""Utterances that are written to be listened to."""


@dataclass(frozen=True)
class DevResult:
    """Scores by name, and the first utterances to listen to."""

    scores: dict[str, float]
    samples: list[tuple[Samples, Samples]]
    """(original, decoded)"""


def load_dev_set(source: str, count: int, sample_rate: int) -> list[Samples]:
    """`count` utterances spread evenly over the set."""
    utterances = find_utterances(source)
    chosen = np.unique(np.linspace(0, len(utterances) - 1, min(count, len(utterances))).round().astype(int))
    limit = round(LONGEST_SECONDS * sample_rate)
    return [utterances[i].read(sample_rate, length=limit)[0] for i in chosen]


def evaluate(codec: DTMCodec, originals: Sequence[Samples], metrics: Sequence[Metric]) -> DevResult:
    """Encode and decode every utterance; mean of each metric, and what the mask does."""
    rate = codec.config.sample_rate
    encoded = [codec.encode(original, rate) for original in originals]
    decoded = [codec.decode(e) for e in encoded]
    judged = [
        Sample(resample(copy, rate, SAMPLE_RATE), resample(original, rate, SAMPLE_RATE))
        for original, copy in zip(originals, decoded, strict=True)
    ]
    means = {f"dev/{metric.name}": _mean(metric, judged) for metric in metrics}
    scores = {name: value for name, value in means.items() if value is not None}
    pairs = list(zip(originals, decoded, strict=True))
    return DevResult(scores | mask_figures(encoded, originals), pairs[:HEARD])


def _mean(metric: Metric, judged: Sequence[Sample]) -> float | None:
    """Over the utterances that have a value: some metrics have none for silence."""
    scores = []
    for sample in judged:
        with suppress(AudioError):
            scores.append(metric.score(sample))
    values = [score.value for score in scores if score is not None]
    return float(np.mean(values)) if values else None


def mask_figures(encoded: Sequence[Encoded], originals: Sequence[Samples]) -> dict[str, float]:
    """Keep ratio over all frames and in the quietest and loudest fifth, and how long spans are.

    A selector that adapts keeps few quiet and many loud frames and has spans of many lengths; one that is a
    stride in disguise pays position bits for nothing.
    """
    masks, levels = [], []
    for utterance, original in zip(encoded, originals, strict=True):
        hop = utterance.layout.hop_length
        frames = np.pad(original, (0, utterance.mask.size * hop - original.size)).reshape(-1, hop)
        levels.append(np.square(frames).mean(axis=1))
        masks.append(utterance.mask)
    mask = np.concatenate(masks)[np.argsort(np.concatenate(levels), kind="stable")]
    fifth = max(1, mask.size // 5)
    spans = np.concatenate([utterance.durations for utterance in encoded])
    figures = {
        "dev/keep_ratio": float(mask.mean()),
        "dev/keep_ratio_quiet": float(mask[:fifth].mean()),
        "dev/keep_ratio_loud": float(mask[-fifth:].mean()),
    }
    for span in range(1, 5):
        figures[f"dev/spans_{span}"] = float((spans == span).mean())
    return figures | {"dev/spans_5+": float((spans >= 5).mean())}


def write_samples(folder: Path, result: DevResult, sample_rate: int) -> None:
    """Original and decoded utterances side by side, as FLAC."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, (original, decoded) in enumerate(result.samples):
        write_audio(folder / f"{index}-original.flac", original, sample_rate)
        write_audio(folder / f"{index}-decoded.flac", decoded, sample_rate)
