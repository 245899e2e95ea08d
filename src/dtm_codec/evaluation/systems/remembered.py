"""A system that was judged earlier and is not at hand any more: a model that was moved or trained on another machine, a
program that is not installed here. It cannot code anything, but what is known of it stands in tables."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import DTMCodecError
from ...speech.audio import Samples
from .base import Coded, System


@dataclass(frozen=True)
class Portrait:
    """What results need of a system itself."""

    name: str
    title: str
    series: str
    identity: str
    parameters: int | None


class Remembered(System):
    def __init__(self, portrait: Portrait) -> None:
        self.name, self.title, self.series = portrait.name, portrait.title, portrait.series
        self._portrait = portrait

    @property
    def identity(self) -> str:
        return self._portrait.identity

    @property
    def parameters(self) -> int | None:
        return self._portrait.parameters

    def encode(self, audio: Samples) -> Coded:
        raise DTMCodecError(f"{self.name} is not at hand any more")

    def decode(self, coded: Coded) -> Samples:
        raise DTMCodecError(f"{self.name} is not at hand any more")
