"""Scores, listening samples and a look at the mask on dev utterances, while training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..audio import Samples, read_audio, write_audio
from ..codec import DTMCodec
from ..encoded import Encoded
from ..errors import MissingExtraError
from .data import find_utterances
from .losses import MultiScaleMelLoss

LONGEST_SECONDS = 10.0
"""Utterances are cut here: dev scores are to be had often."""


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
    return [read_audio(utterances[i].path, sample_rate)[0][:limit] for i in chosen]


@torch.no_grad()
def evaluate(codec: DTMCodec, originals: Sequence[Samples], samples: int = 4) -> DevResult:
    """Encode and decode every utterance; PESQ (wide band), STOI, mel distance, and what the mask does."""
    try:
        from pesq import PesqError, pesq
        from pystoi import stoi
    except ImportError as error:
        raise MissingExtraError("pesq and pystoi", "train") from error
    rate = codec.config.sample_rate
    mel = MultiScaleMelLoss(rate)
    encoded = [codec.encode(original, rate) for original in originals]
    decoded = [codec.decode(e) for e in encoded]
    pesqs, stois, mels = [], [], []
    for original, copy in zip(originals, decoded, strict=True):
        score = pesq(16_000, original, copy, "wb", on_error=PesqError.RETURN_VALUES) if rate == 16_000 else -1
        if score > 0:  # no score without speech, or at another rate
            pesqs.append(score)
        stois.append(stoi(original, copy, rate))
        mels.append(float(mel(torch.from_numpy(copy)[None], torch.from_numpy(original)[None])))
    scores = {"dev/stoi": float(np.mean(stois)), "dev/mel": float(np.mean(mels))}
    if pesqs:
        scores["dev/pesq"] = float(np.mean(pesqs))
    scores |= mask_statistics(encoded, originals)
    return DevResult(scores, list(zip(originals, decoded, strict=True))[:samples])


def mask_statistics(encoded: Sequence[Encoded], originals: Sequence[Samples]) -> dict[str, float]:
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
    statistics = {
        "dev/keep_ratio": float(mask.mean()),
        "dev/keep_ratio_quiet": float(mask[:fifth].mean()),
        "dev/keep_ratio_loud": float(mask[-fifth:].mean()),
    }
    for span in range(1, 5):
        statistics[f"dev/spans_{span}"] = float((spans == span).mean())
    return statistics | {"dev/spans_5+": float((spans >= 5).mean())}


def write_samples(folder: Path, result: DevResult, sample_rate: int) -> None:
    """Original and decoded utterances side by side, as FLAC."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, (original, decoded) in enumerate(result.samples):
        write_audio(folder / f"{index}-original.flac", original, sample_rate)
        write_audio(folder / f"{index}-decoded.flac", decoded, sample_rate)
