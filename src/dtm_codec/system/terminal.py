"""Text for people: names of files and recordings can hold what steers a terminal, so it is written out."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment


def printable(text: str) -> str:
    """One line of text, with everything that would steer a terminal written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


class PrintableConsole(Console):
    """All that it prints is printable, but for the colours and cursor movements that rich itself adds."""

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))


class PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))
