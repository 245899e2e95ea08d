"""Manifests of millions of lines, read in byte ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..speech.manifest import parse_line
from ..speech.utterance import Utterance
from .parts import Compare, Fingerprint, Ids, Part, Source


@dataclass(frozen=True)
class Manifest(Source):
    """Of a corpus, or of the files in a folder. Every line must be sound and every id stand once."""

    path: Path

    @classmethod
    def scan(cls, path: Path, root: Path, compare: Compare) -> Manifest:
        """Read the manifest once, to check it; look at the files that it names, but for their audio."""
        fingerprint, ids, count = Fingerprint(compare), Ids(), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                fingerprint.add(line)
                if line.strip():
                    where = f"{path} line {number}"
                    utterance = parse_line(line, root, where)
                    ids.add(utterance.id, where)
                    count += 1
                    if isinstance(utterance.audio, Path):
                        fingerprint.add_file(utterance.audio)
        return cls(root, str(fingerprint), count, path)

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
