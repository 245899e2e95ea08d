"""Results that are slow to get and small to keep: a JSON file from what was asked to what came out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ..system.files import write_atomically

Cached = TypeVar("Cached")


class ResultCache:
    """Flat dataclasses by key; the key says all that the result depends on, the model's identity included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}

    def find(self, key: str, cls: type[Cached]) -> Cached | None:
        return cls(**self._known[key]) if key in self._known else None

    def put(self, key: str, value: Any) -> None:
        """Keep it in the place of what was there."""
        if self._known.get(key) != (new := asdict(value)):
            self._known[key] = new
            self._write()

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, json.dumps(self._known, indent=1).encode())

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def get(self, key: str, cls: type[Cached], compute: Callable[[], Cached]) -> Cached:
        """The kept result, or a new one, kept from now on."""
        if key not in self._known:
            self._known[key] = asdict(compute())  # type: ignore[call-overload]
            self._write()
        return cls(**self._known[key])
