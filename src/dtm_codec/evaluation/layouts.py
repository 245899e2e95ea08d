"""Probing sets as they are published, read from their folders: RAVDESS, EMOVO, AudioMNIST, SLURP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import DataError
from ..speech.folders import read_set
from ..speech.utterance import Utterance

_EMOTIONS = ("neutral", "calm", "happy", "sad", "angry", "fearful", "disgust", "surprised")  # RAVDESS numbers them
_NAMED = {
    "RAVDESS": (r"[^-]*-01-0(?P<emotion>[1-8])-[^-]*-[^-]*-[^-]*-(?P<speaker>[^-]*)", "en", "rav"),
    "EMOVO": (r"(?P<emotion>[a-z]{3})-(?P<speaker>[fm]\d)-\w+", "it", ""),
    "AudioMNIST": (r"(?P<digit>\d)_(?P<speaker>\d+)_\d+", "en", "am"),
}
"""Sets whose file names say what they are: pattern of the stem, language, what speakers' names begin with.

RAVDESS: `03-01-EMOTION-INTENSITY-SENTENCE-REPETITION-ACTOR.wav`, where 01 is speech; 24 actors. EMOVO: `dis-f1-b1.wav`,
emotion, speaker and sentence; 6 speakers. AudioMNIST: `DIGIT_SPEAKER_REPETITION.wav`; 60 speakers.
"""


def read_layout(name: str, folder: Path) -> list[Utterance]:
    """The utterances of a published set in its folder."""
    if name not in (*_NAMED, "SLURP"):
        raise DataError(f"no probing set {name!r}; known: {', '.join(_NAMED)}, SLURP")
    found = list(_slurp(folder) if name == "SLURP" else _named(name, folder))
    if not found:
        raise DataError(f"{folder} has no files of {name}")
    return found


def _named(name: str, folder: Path) -> Iterator[Utterance]:
    pattern, language, prefix = _NAMED[name]
    for utterance in read_set(folder):
        if match := re.fullmatch(pattern, Path(utterance.id).stem):
            labels = match.groupdict()
            speaker = prefix + labels.pop("speaker")
            if name == "RAVDESS":
                labels["emotion"] = _EMOTIONS[int(labels["emotion"]) - 1]
            yield replace(utterance, speaker=speaker, language=language, set=name.lower(), labels=labels)


def _slurp(folder: Path) -> Iterator[Utterance]:
    """`dataset/slurp/{train,devel,test}.jsonl` with the recordings under `audio/`; intents, and a split of its own."""
    recordings = {Path(utterance.id).name: utterance for utterance in read_set(folder)}
    for split in ("train", "test"):
        for file in sorted(folder.rglob(f"{split}.jsonl")):
            for number, line in enumerate(file.read_bytes().splitlines(), 1):
                try:
                    row = json.loads(line)
                    names = [str(recording["file"]) for recording in row["recordings"]]
                    labels = {"intent": str(row["intent"]), "split": split}
                except (ValueError, TypeError, KeyError, RecursionError):
                    allowed = "an object with intent, and recordings that have a file each"
                    raise DataError(f"{file} line {number} is none of SLURP; allowed: {allowed}") from None
                for name in names:
                    if name in recordings:
                        known = {"text": row.get("sentence"), "language": "en", "set": "slurp"}
                        yield replace(recordings[name], id=name, labels=labels, **known)
