"""What a report consists of, whatever it is written as."""

from __future__ import annotations

from dataclasses import dataclass

from .tables import Block

REFERENCE_NOTE = "Reference rows from the paper: its judges, its test set, its models. Not measured here."


@dataclass(frozen=True)
class Panel:
    """One picture, as SVG and PDF in the report's folder."""

    stem: str
    title: str


@dataclass(frozen=True)
class Figure:
    panels: tuple[Panel, ...]
    caption: str


@dataclass(frozen=True)
class Version:
    """One sound of an utterance."""

    title: str
    sound: bytes
    """A FLAC file."""
    values: tuple[tuple[str, str], ...] = ()
    """What judges say of this very sound: heading and value."""
    heard: str | None = None
    """What a recogniser heard."""


@dataclass(frozen=True)
class Example:
    """An utterance to listen to: the reference first, then all systems."""

    title: str
    versions: tuple[Version, ...]


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    items: tuple[Block | Figure | Example, ...]


@dataclass(frozen=True)
class Report:
    title: str
    text: str
    sections: tuple[Section, ...]


def notes(block: Block) -> list[str]:
    """What stands below a table, apart from its judges."""
    return [*([REFERENCE_NOTE] if block.reference else []), *block.notes]
