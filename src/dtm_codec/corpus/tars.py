"""WebDataset tars as a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..speech.tars import read_tar
from ..speech.utterance import Failure, Utterance
from .parts import Part, Source


@dataclass(frozen=True)
class Tars(Source):
    """Every tar is a part, of whatever size it is: to divide it, it would have to be read."""

    files: tuple[str, ...]

    def parts(self, size: int) -> Iterator[Part]:
        """The tars."""
        return (Part(file, 0, 0, None) for file in self.files)

    def read(self, part: Part) -> Iterator[Utterance | Failure]:
        """The items of a tar; where it breaks off, a failure."""
        return read_tar(self.root / part.file, part.file)
