"""Probing sets as they are published, read from their folders: RAVDESS, EMOVO, AudioMNIST, SLURP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import DataError
from ..speech.folders import read_set
from ..speech.utterance import Utterance

_RAVDESS = ("neutral", "calm", "happy", "sad", "angry", "fearful", "disgust", "surprised")


def ravdess(folder: Path) -> Iterator[Utterance]:
    """`03-01-EMOTION-INTENSITY-SENTENCE-REPETITION-ACTOR.wav`, speech files only; 8 emotions, 24 actors."""
    for utterance in read_set(folder):
        fields = Path(utterance.id).stem.split("-")
        if len(fields) == 7 and fields[1] == "01" and 1 <= int(fields[2]) <= len(_RAVDESS):
            labels = {"emotion": _RAVDESS[int(fields[2]) - 1]}
            yield replace(utterance, speaker=f"rav{fields[6]}", language="en", set="ravdess", labels=labels)


def emovo(folder: Path) -> Iterator[Utterance]:
    """`EMOTION-SPEAKER-SENTENCE.wav` as in `dis-f1-b1.wav`; 7 emotions, 6 speakers, Italian."""
    for utterance in read_set(folder):
        match = re.fullmatch(r"([a-z]{3})-([fm]\d)-\w+", Path(utterance.id).stem)
        if match:
            yield replace(utterance, speaker=match[2], language="it", set="emovo", labels={"emotion": match[1]})


def audiomnist(folder: Path) -> Iterator[Utterance]:
    """`DIGIT_SPEAKER_REPETITION.wav`; 60 speakers."""
    for utterance in read_set(folder):
        match = re.fullmatch(r"(\d)_(\d+)_\d+", Path(utterance.id).stem)
        if match:
            speaker, labels = f"am{match[2]}", {"digit": match[1]}
            yield replace(utterance, speaker=speaker, language="en", set="audiomnist", labels=labels)


def slurp(folder: Path) -> Iterator[Utterance]:
    """`dataset/slurp/{train,devel,test}.jsonl` with the recordings under `audio/`; intents, and a split of its own."""
    recordings = {Path(utterance.id).name: utterance for utterance in read_set(folder)}
    for split in ("train", "test"):
        for file in sorted(folder.rglob(f"{split}.jsonl")):
            for line in file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                for recording in row["recordings"]:
                    name, labels = recording["file"], {"intent": row["intent"], "split": split}
                    if name in recordings:
                        known = {"text": row.get("sentence"), "language": "en", "set": "slurp"}
                        yield replace(recordings[name], id=name, labels=labels, **known)


LAYOUTS: dict[str, Callable[[Path], Iterator[Utterance]]] = {
    "RAVDESS": ravdess,
    "EMOVO": emovo,
    "AudioMNIST": audiomnist,
    "SLURP": slurp,
}


def read_layout(name: str, folder: Path) -> list[Utterance]:
    """The utterances of a published set in its folder."""
    if name not in LAYOUTS:
        raise DataError(f"no probing set {name!r}; known: {', '.join(LAYOUTS)}")
    found = list(LAYOUTS[name](folder))
    if not found:
        raise DataError(f"{folder} has no files of {name}")
    return found
