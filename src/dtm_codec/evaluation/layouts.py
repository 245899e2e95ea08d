"""Probing sets as they are published, read from their folders: RAVDESS, EMOVO, AudioMNIST, SLURP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ..files import files_under
from ..speech.audio import READ_SUFFIXES
from .data import DataError, Utterance

_RAVDESS = ("neutral", "calm", "happy", "sad", "angry", "fearful", "disgust", "surprised")


def ravdess(folder: Path) -> Iterator[Utterance]:
    """`03-01-EMOTION-INTENSITY-SENTENCE-REPETITION-ACTOR.wav`, speech files only; 8 emotions, 24 actors."""
    for path in files_under(folder, READ_SUFFIXES):
        fields = path.stem.split("-")
        if len(fields) == 7 and fields[1] == "01" and 1 <= int(fields[2]) <= len(_RAVDESS):
            labels = {"emotion": _RAVDESS[int(fields[2]) - 1]}
            yield Utterance(str(path.relative_to(folder)), path, None, "en", f"rav{fields[6]}", "ravdess", labels)


def emovo(folder: Path) -> Iterator[Utterance]:
    """`EMOTION-SPEAKER-SENTENCE.wav` as in `dis-f1-b1.wav`; 7 emotions, 6 speakers, Italian."""
    for path in files_under(folder, READ_SUFFIXES):
        match = re.fullmatch(r"([a-z]{3})-([fm]\d)-\w+", path.stem)
        if match:
            labels = {"emotion": match[1]}
            yield Utterance(str(path.relative_to(folder)), path, None, "it", match[2], "emovo", labels)


def audiomnist(folder: Path) -> Iterator[Utterance]:
    """`DIGIT_SPEAKER_REPETITION.wav`; 60 speakers."""
    for path in files_under(folder, READ_SUFFIXES):
        match = re.fullmatch(r"(\d)_(\d+)_\d+", path.stem)
        if match:
            labels = {"digit": match[1]}
            yield Utterance(str(path.relative_to(folder)), path, None, "en", f"am{match[2]}", "audiomnist", labels)


def slurp(folder: Path) -> Iterator[Utterance]:
    """`dataset/slurp/{train,devel,test}.jsonl` with the recordings under `audio/`; intents, and a split of its own."""
    paths = {path.name: path for path in files_under(folder, READ_SUFFIXES)}
    for split in ("train", "test"):
        for file in sorted(folder.rglob(f"{split}.jsonl")):
            for line in file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                for recording in row["recordings"]:
                    path = paths.get(recording["file"])
                    if path is not None:
                        labels = {"intent": row["intent"], "split": split}
                        yield Utterance(recording["file"], path, row.get("sentence"), "en", None, "slurp", labels)


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
