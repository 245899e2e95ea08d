"""Scripts that pages of several rooms use: the player, and pictures of sound. They import nothing, so that a page can
carry them inside it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def scripts() -> list[Traversable]:
    return [entry for entry in resources.files(__package__).iterdir() if entry.name.endswith(".js")]


def inline(names: Iterable[str]) -> str:
    """Scripts one after the other, as the text of one module inside a page."""
    return "\n".join(resources.files(__package__).joinpath(name).read_text(encoding="utf-8") for name in names)
