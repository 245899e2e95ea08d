"""What every kind of corpus has in common: parts that can be read on their own, and utterances in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..speech.audio import READ_SUFFIXES
from .errors import CorpusError

AUDIO_SUFFIXES = (*READ_SUFFIXES, ".oga", ".sph", ".m4a", ".aac", ".wma", ".amr", ".webm")
"""What counts as audio in a folder or tar: with what we cannot read, so that it is listed as a failure."""

# Names that fields have in the manifests and datasets people share; the first one with a value counts.
ID_FIELDS = ("id", "utterance_id")
AUDIO_FIELDS = ("audio_filepath", "audio", "path", "wav")
TEXT_FIELDS = ("text", "transcript", "transcription", "sentence", "normalized_text")
SPEAKER_FIELDS = ("speaker", "speaker_id", "spk", "client_id")


@dataclass(frozen=True)
class Item:
    """One utterance to tokenize."""

    id: str
    audio: Path | bytes | None
    """Where its audio is; None if there is none to read, and `problem` says why."""
    text: str | None = None
    speaker: str | None = None
    offset_s: float = 0.0
    duration_s: float | None = None
    """The segment of `audio` that is meant; None: to the end."""
    problem: str | None = None


@dataclass(frozen=True)
class Part:
    """A stretch of a source: the work of one shard."""

    file: str
    """Relative to the source's folder; empty for the manifest itself."""
    start: int
    stop: int
    """Bytes of a manifest, row groups of a table; a tar is always read whole."""
    items: int | None
    """How many, where it is known without reading."""


@dataclass(frozen=True)
class Source(ABC):
    """A corpus on a file system that every worker sees."""

    root: Path
    """Relative names count from here."""
    fingerprint: str
    """Changes when the corpus does: of the manifest's content, or of the files' names and sizes."""
    items: int | None
    """How many, where it is known without reading."""

    @abstractmethod
    def parts(self, size: int) -> Iterator[Part]:
        """Cut into parts of about `size` items, the same ones each time."""

    @abstractmethod
    def read(self, part: Part) -> Iterator[Item]:
        """The items of a part, in order."""


def text_field(record: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """The first of these fields that has a value, as text."""
    value = first_value(record, names)
    return None if value is None else plain_text(str(value))


def first_value(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first of these fields that has a value."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def plain_text(name: str) -> str:
    """Text that every program can read: a file name's bytes that are no UTF-8 are written out."""
    return name.encode("utf-8", "backslashreplace").decode()


class Ids:
    """The ids seen so far, kept as 64-bit hashes: ten million take less than 1 GB."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def add(self, item_id: str, where: str) -> None:
        """Refuse an id that stands twice: rows could not be told apart."""
        before = len(self._hashes)
        self._hashes.add(hash(item_id))
        if len(self._hashes) == before:
            raise CorpusError(f"{where}: the id {item_id!r} stands there a second time; ids must differ")
