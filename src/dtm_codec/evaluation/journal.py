"""What a run has done so far: an append-only file of JSON lines, safe against kill -9 at any moment.

Each run starts with a header that names its systems and judges by identity; the lines after it are results under that
header. A line is on disk before it counts. When another version of a model or judge comes under the same name, its
older results are passed over, and done anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..errors import DTMCodecError
from ..metrics.base import Score


class JournalError(DTMCodecError):
    """A journal that another run is writing."""


@dataclass
class Result:
    """One utterance through one system."""

    system: str
    utterance: str
    """Key of the utterance."""
    seconds: float = 0.0
    content_bits: int = 0
    position_bits: int = 0
    written_bits: int = 0
    scores: dict[str, Score | None] = field(default_factory=dict)
    """By metric; None where the judge has no value for this utterance."""
    error: str | None = None
    """Why the system failed on it; tried again by the next run."""

    def to_json(self) -> str:
        """One line."""
        scores = {name: [s.value, s.weight, s.note] if s else None for name, s in self.scores.items()}
        return json.dumps({**vars(self), "scores": scores}, ensure_ascii=False)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Result:
        """Read a line back."""
        scores = {name: Score(*entry) if entry is not None else None for name, entry in data["scores"].items()}
        return Result(**{**data, "scores": scores})


@dataclass(frozen=True)
class Header:
    """Who is judged by whom: name -> identity."""

    systems: Mapping[str, str]
    judges: Mapping[str, str]


class Journal:
    """The file, and the results in it that are still valid under the header of this run."""

    def __init__(self, path: Path, header: Header) -> None:
        self.results: dict[tuple[str, str], Result] = {}
        """By system and utterance key."""
        self._header = header
        self._file: IO[bytes] = path.open("r+b" if path.exists() else "w+b")
        _lock(self._file)
        complete = self._read()
        self._file.truncate(complete)  # a line torn by a kill
        self._file.seek(complete)
        self._append(json.dumps({"header": vars(header)}, ensure_ascii=False))

    def add(self, result: Result) -> None:
        """Put a result on disk, then count it."""
        self._append(result.to_json())
        self._count(result)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def missing(self, system: str, utterance: str) -> list[str]:
        """Metrics that this utterance still lacks for this system."""
        done = self.results.get((system, utterance))
        scores = {} if done is None or done.error else done.scores
        return [name for name in self._header.judges if name not in scores]

    def _append(self, line: str) -> None:
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _count(self, result: Result) -> None:
        earlier = self.results.get((result.system, result.utterance))
        if earlier is not None:
            result.scores = {**earlier.scores, **result.scores}
        self.results[result.system, result.utterance] = result

    def _read(self) -> int:
        """Take over earlier results; returns the length of the whole lines."""
        complete = 0
        then = Header({}, {})
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            complete += len(line)
            data = json.loads(line)
            if "header" in data:
                then = Header(**data["header"])
            else:
                self._take(Result.from_json(data), then)
        return complete

    def _take(self, result: Result, then: Header) -> None:
        now = self._header
        if now.systems.get(result.system) != then.systems.get(result.system):
            return
        result.scores = {n: s for n, s in result.scores.items() if now.judges.get(n) == then.judges.get(n)}
        self._count(result)


def _lock(file: IO[bytes]) -> None:
    """Keep a second run out of the same folder, where the system has locks; a killed run leaves none behind."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise JournalError(f"{file.name} is in use: another run is writing to this folder") from None
