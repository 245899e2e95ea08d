"""What every kind of corpus has in common: parts that can be read on their own, and ids that differ."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import DataError
from ..speech.utterance import Failure, Utterance

Compare = Literal["times", "content"]
"""How a run that goes on finds out whether a file is still the same: by size and time, or by what is in it."""


def state_of(path: Path, compare: Compare) -> str:
    """What changes when the file does; empty for one that is not there, which fails when it is read."""
    try:
        known = path.stat()
        if compare == "times":
            return f"{known.st_size} {known.st_mtime_ns}"
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()
    except (OSError, ValueError):  # no name has a zero in it
        return ""


class Fingerprint:
    """Of a corpus: what is said of it, and the states of its files."""

    def __init__(self, compare: Compare) -> None:
        self._compare, self._digest = compare, hashlib.sha256()
        self._last: Path | None = None

    def add(self, text: bytes) -> None:
        self._digest.update(text)

    def add_file(self, path: Path) -> None:
        if path != self._last:  # segments of one recording follow each other
            self._last = path
            self._digest.update(state_of(path, self._compare).encode())

    def __str__(self) -> str:
        return f"{self._compare}:{self._digest.hexdigest()}"


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
    """Changes when the corpus does: of a manifest's lines, and of the names and states of all files."""
    items: int | None
    """How many, where it is known without reading."""

    @abstractmethod
    def parts(self, size: int) -> Iterator[Part]:
        """Cut into parts of about `size` items, the same ones each time."""

    @abstractmethod
    def read(self, part: Part) -> Iterator[Utterance | Failure]:
        """The items of a part, in order: utterances, and failures in the place of those that cannot be had."""


class Ids:
    """The ids seen so far, kept as 64-bit hashes: ten million take less than 1 GB."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def add(self, item_id: str, where: str) -> None:
        """Refuse an id that stands twice: rows could not be told apart."""
        before = len(self._hashes)
        self._hashes.add(hash(item_id))
        if len(self._hashes) == before:
            raise DataError(f"{where}: the id {item_id!r} stands there a second time; ids must differ")
