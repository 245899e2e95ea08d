"""Manifests of millions of lines, read in byte ranges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..speech.manifest import parse_line
from ..speech.utterance import Utterance
from .parts import Compare, Ids, Part, Source, state_of


@dataclass(frozen=True)
class Manifest(Source):
    """Of a corpus, or of the files in a folder. Every line must be sound and every id stand once."""

    path: Path

    @classmethod
    def scan(cls, path: Path, root: Path, compare: Compare) -> Manifest:
        """Read the manifest once, to check it; look at the files that it names, but for their audio."""
        digest, ids, count = hashlib.sha256(), Ids(), 0
        last = None  # segments of one recording follow each other
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                digest.update(line)
                if line.strip():
                    where = f"{path} line {number}"
                    utterance = parse_line(line, root, where)
                    ids.add(utterance.id, where)
                    count += 1
                    if utterance.audio != last and isinstance(utterance.audio, Path):
                        last = utterance.audio
                        digest.update(state_of(last, compare).encode())
        return cls(root, f"{compare}:{digest.hexdigest()}", count, path)

    def parts(self, size: int) -> Iterator[Part]:
        start = position = count = 0
        with self.path.open("rb") as file:
            for line in file:
                position += len(line)
                count += bool(line.strip())
                if count == size:
                    yield Part("", start, position, count)
                    start, count = position, 0
        if count:
            yield Part("", start, position, count)

    def read(self, part: Part) -> Iterator[Utterance]:
        with self.path.open("rb") as file:
            file.seek(part.start)
            while file.tell() < part.stop:
                if (line := file.readline()).strip():
                    yield parse_line(line, self.root, str(self.path))
