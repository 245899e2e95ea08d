"""Test sets: a JSON-lines manifest, or a folder of audio with or without transcripts.

A manifest has one object a line: `audio_filepath` (relative to the manifest), and where known `text`, `lang`,
`speaker`, `set`, and labels such as `emotion`. In a folder, transcripts come from LibriSpeech's `*.trans.txt`, MLS's
`transcripts.txt`, or a `.txt` beside the audio file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path

from ..errors import DTMCodecError
from ..files import files_under
from ..speech.audio import READ_SUFFIXES

_MLS_LANGUAGES = {
    "mls_dutch": "nl",
    "mls_english": "en",
    "mls_french": "fr",
    "mls_german": "de",
    "mls_italian": "it",
    "mls_polish": "pl",
    "mls_portuguese": "pt",
    "mls_spanish": "es",
}
_NOT_LABELS = {"audio_filepath", "duration", "text", "lang", "speaker", "set"}
_CONDITION = re.compile(r"(?P<field>\w+)(?P<relation>!?=)(?P<value>.*)")


class DataError(DTMCodecError):
    """A test set that cannot be read, or has nothing that was asked for."""


@dataclass(frozen=True)
class Utterance:
    """One line of a test set."""

    id: str
    """Its path as the set names it."""
    path: Path
    text: str | None = None
    language: str | None = None
    speaker: str | None = None
    set: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further fields: emotion, digit, gender, split."""

    @cached_property
    def key(self) -> str:
        """Changes with what is judged: name, sound, text."""
        sound = hashlib.sha256(self.path.read_bytes()).hexdigest()
        text = f"{self.id}\0{sound}\0{self.text}\0{self.language}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def value(self, name: str) -> str | None:
        """A field or label by its name in the manifest."""
        own = {"lang": self.language, "speaker": self.speaker, "set": self.set, "text": self.text}
        return own[name] if name in own else self.labels.get(name)


def read_data(source: str | PathLike[str], where: Sequence[str] = ()) -> list[Utterance]:
    """Utterances of a manifest or folder that meet all conditions (`lang=en`, `lang!=en`, `set=mls_de`)."""
    path = Path(source)
    if path.is_dir():
        utterances = list(_from_folder(path))
    elif path.is_file() and path.suffix.lower() in READ_SUFFIXES:
        utterances = [Utterance(path.name, path)]
    elif path.is_file():
        utterances = list(_from_manifest(path))
    else:
        raise DataError(f"no test set {str(source)!r}; allowed: audio, a folder of it, or a JSON-lines manifest")
    chosen = [u for u in utterances if all(_meets(u, condition) for condition in where)]
    if not chosen:
        raise DataError(f"{source} has no utterances" + (f" with {' and '.join(where)}" if where else ""))
    return chosen


def _meets(utterance: Utterance, condition: str) -> bool:
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise DataError(f"condition {condition!r}; allowed: field=value or field!=value")
    value = utterance.value(match["field"])
    return value is not None and (value == match["value"]) == (match["relation"] == "=")


def _from_manifest(path: Path) -> Iterator[Utterance]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                name = row["audio_filepath"]
                audio = path.parent / name
            except (ValueError, TypeError, KeyError):
                raise DataError(f"{path}, line {number}: no JSON object with 'audio_filepath'") from None
            if not audio.is_file():
                raise DataError(f"{path}, line {number}: {audio} is not there")
            values = {key: str(value) for key, value in row.items() if value is not None}
            text, language, speaker, subset = map(values.get, ("text", "lang", "speaker", "set"))
            labels = {key: value for key, value in values.items() if key not in _NOT_LABELS}
            yield Utterance(name, audio, text, language, speaker, subset, labels)


def _from_folder(folder: Path) -> Iterator[Utterance]:
    transcripts = dict(_transcripts(folder))
    for path in files_under(folder, READ_SUFFIXES):
        beside = path.with_suffix(".txt")
        text = transcripts.get(path.stem) or (beside.read_text(encoding="utf-8").strip() if beside.is_file() else None)
        yield Utterance(str(path.relative_to(folder)), path, text, language_of(path))


def language_of(path: Path) -> str | None:
    """The language that a published corpus is in, by where its files lie: MLS's folders, or beside a transcript of
    LibriSpeech."""
    mls = next((_MLS_LANGUAGES[part] for part in path.parts if part in _MLS_LANGUAGES), None)
    return mls or ("en" if any(path.parent.glob("*.trans.txt")) else None)


def _transcripts(folder: Path) -> Iterable[tuple[str, str]]:
    """(stem, text) of LibriSpeech's and MLS's transcript files: an identifier, white space, the text."""
    for path in [*folder.rglob("*.trans.txt"), *folder.rglob("transcripts.txt")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            stem, *text = line.split(maxsplit=1)
            if text:
                yield stem, text[0]
