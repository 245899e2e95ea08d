"""Where trained models are: `DIR/s-vfr-50`, or the `export` folder of a training run of that name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError, ModelError
from ..models.hub import find as find_model

FAMILIES = ("small", "paper")
"""Twins for CPU, or the paper's own size."""

_OUR_MODEL = re.compile(r"(?<![^:])dtm:([^?]+)")


@dataclass(frozen=True)
class Models:
    folder: Path | None
    family: str = "small"
    given: Mapping[str, str] = field(default_factory=dict)
    """Name in recipes -> bundled name, folder or hub id, for models that are elsewhere."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ConfigError(f"family {self.family!r}; allowed: {', '.join(FAMILIES)}")

    def find(self, name: str) -> str | None:
        """What `dtm:` takes for the model of that name, or None if it is not trained yet."""
        if name in self.given:
            return self.given[name] if _exists(self.given[name]) else None
        full = self.full_name(name)
        for folder in (self.folder / full, self.folder / full / "export") if self.folder else ():
            if (folder / "model.safetensors").is_file():
                return str(folder)
        return None

    def seeds(self, name: str) -> list[int]:
        """Seeds of further runs of that model, which are called `s-vfr-50-seed2` and so on."""
        pattern = re.compile(re.escape(self.full_name(name)) + r"-seed(\d+)")
        folders = self.folder.iterdir() if self.folder and self.folder.is_dir() else ()
        found = (pattern.fullmatch(folder.name) for folder in folders)
        return sorted(int(match[1]) for match in found if match and self.find(f"{name}-seed{match[1]}"))

    def put_into(self, system: str) -> str:
        """A system by name, as `lossy:dtm:small?loss=5`, with the model that was given in place of the one it names."""
        return _OUR_MODEL.sub(lambda found: "dtm:" + self.given.get(found[1], found[1]), system)

    def full_name(self, name: str) -> str:
        """Its name in this family: vfr-50 is s-vfr-50 among the small; fine-tuned ones are s-ple and ft-ple."""
        return f"s-{name.removeprefix('ft-')}" if self.family == "small" else name


def _exists(model: str) -> bool:
    if model.startswith("random:"):
        return True
    try:
        return find_model(model).is_dir()
    except ModelError:
        return False
