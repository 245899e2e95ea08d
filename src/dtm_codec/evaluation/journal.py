"""What a run has done so far, in SQLite: a result is on disk before it counts, whatever kills the run.

Results are kept by the identity of system and judge. When another version of a model or judge comes under the same
name, the older results stay in the file, and the new version is judged from the start.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DTMCodecError
from ..metrics.base import Score

_SCHEMA = """
BEGIN EXCLUSIVE;
CREATE TABLE IF NOT EXISTS utterances (
    system TEXT, identity TEXT, utterance TEXT,
    seconds REAL, content_bits INTEGER, position_bits INTEGER, written_bits INTEGER, error TEXT,
    PRIMARY KEY (system, identity, utterance)
);
CREATE TABLE IF NOT EXISTS scores (
    system TEXT, identity TEXT, utterance TEXT, metric TEXT, judge TEXT, value REAL, weight REAL, note TEXT,
    PRIMARY KEY (system, identity, utterance, metric, judge)
);
COMMIT;
"""


class JournalError(DTMCodecError):
    """A journal that another run is writing, that cannot be written, or a file that is no journal."""


@dataclass
class JudgedUtterance:
    system: str
    utterance: str
    """Key of the utterance."""
    seconds: float = 0.0
    content_bits: int | None = 0
    position_bits: int | None = 0
    written_bits: int | None = 0
    """None where nobody knows what was transmitted."""
    error: str | None = None
    """Why the system failed on it; the next run tries again."""
    scores: dict[str, Score | None] = field(default_factory=dict)
    """By metric; None where the judge has no value for this utterance."""


class Journal:
    """The file, and the results in it of these systems and judges."""

    def __init__(self, path: Path, systems: Mapping[str, str], judges: Mapping[str, str]) -> None:
        """systems, judges: name -> identity."""
        self.results: dict[tuple[str, str], JudgedUtterance] = {}
        """By system and utterance key."""
        self._path, self._systems, self._judges = path, systems, judges
        with self._named_errors():
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None)
            # one run at a time: the lock is taken with the schema and ends with the process
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA synchronous = FULL")  # a commit that returns is on disk
            self._database.executescript(_SCHEMA)
        for system, identity, *rest in self._database.execute("SELECT * FROM utterances"):
            if systems.get(system) == identity:
                result = JudgedUtterance(system, *rest)
                self.results[system, result.utterance] = result
        for system, identity, utterance, metric, judge, *score in self._database.execute("SELECT * FROM scores"):
            if systems.get(system) == identity and judges.get(metric) == judge:
                self.results[system, utterance].scores[metric] = Score(*score) if score[0] is not None else None

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise JournalError(f"{self._path} is in use: another run is writing to this folder") from None
            raise JournalError(f"{self._path} cannot be written ({error})") from None
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{self._path} is no journal of a run ({error})") from None

    def add(self, result: JudgedUtterance) -> None:
        """Put a result on disk, then count it."""
        key = (result.system, self._systems[result.system], result.utterance)
        numbers = (result.seconds, result.content_bits, result.position_bits, result.written_bits)
        scores = [
            (*key, name, self._judges[name], *((s.value, s.weight, s.note) if s else (None, None, None)))
            for name, s in result.scores.items()
        ]
        with self._named_errors():
            self._database.execute("BEGIN")
            self._database.execute(
                "INSERT OR REPLACE INTO utterances VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*key, *numbers, result.error)
            )
            self._database.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?)", scores)
            self._database.execute("COMMIT")
        earlier = self.results.get((result.system, result.utterance))
        if earlier is not None:
            result.scores = {**earlier.scores, **result.scores}
        self.results[result.system, result.utterance] = result

    def close(self) -> None:
        self._database.close()

    def missing(self, system: str, utterance: str) -> list[str]:
        """Metrics that this utterance still lacks for this system."""
        done = self.results.get((system, utterance))
        scores = {} if done is None or done.error else done.scores
        return [name for name in self._judges if name not in scores]
