"""Utterances into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: float) -> Iterator[list[Item]]:
    """Neighbours together, up to a total size of `most`; an item above that is alone. Reads no further than needed."""
    group: list[Item] = []
    held = 0
    for item in items:
        if group and held + size(item) > most:
            yield group
            group, held = [], 0
        group.append(item)
        held += size(item)
    if group:
        yield group
