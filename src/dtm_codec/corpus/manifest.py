"""Manifests of millions of lines, read in byte ranges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..speech.manifest import parse_line
from ..speech.utterance import Utterance
from .parts import Ids, Part, Source


@dataclass(frozen=True)
class Manifest(Source):
    """Of a corpus, or of the files in a folder. Every line must be sound and every id stand once."""

    path: Path

    @classmethod
    def scan(cls, path: Path, root: Path) -> Manifest:
        """Read the manifest once, to check it."""
        digest, ids, count = hashlib.sha256(), Ids(), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                digest.update(line)
                if line.strip():
                    where = f"{path} line {number}"
                    ids.add(parse_line(line, root, where).id, where)
                    count += 1
        return cls(root, digest.hexdigest(), count, path)

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
