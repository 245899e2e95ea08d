"""Recipes, one per result of the paper: YAML that names models, peers, test set and the paper's table beside them.

kind systems      rows are systems, columns bits and metrics (Tables 1, 4, 5, 6, 8)
kind pairs        each cell is FFR -> VFR with the relative change (Table 2)
kind probing      linear probes on embeddings (Table 7)
kind listening    ratings of a listening test (Table 3)
kind figure       the rate-distortion figure (Figure 2)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ... import validation
from ...errors import ConfigError
from ...specs import Spec
from ...validation import Validated
from ..paper import tables

Kind = Literal["systems", "pairs", "probing", "listening", "figure"]
Extra = Literal["codes", "speed", "nmse"]
ORDER = (
    "main",
    "ffr-vfr",
    "rate-distortion",
    "listening",
    "masking",
    "codebook",
    "selectors",
    "probing",
    "mls",
)
"""In the order of the paper."""
BEYOND = ("losses", "thinning")
"""Not in the paper, so not part of `all`."""


@dataclass(frozen=True)
class RecipeRow(Validated):
    """One row: a peer by `system`, or one of our models by `model`."""

    cells: tuple[str, ...]
    """Leading cells."""
    group: str | None = None
    system: str | None = None
    model: str | None = None
    options: str | None = None
    """Rate or selector of the model, as in `bitrate=800`."""
    bps: int | None = None
    """Total rate of a VFR model that tau is calibrated to."""
    swap: str | None = None
    """Options that make another model stand in."""
    against: str | None = None
    """Model that the change is relative to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.system) == bool(self.model):
            raise ConfigError(f"row {' '.join(self.cells)!r}; allowed: either a system or a model")


@dataclass(frozen=True)
class ProbeSet:
    name: str
    set: str
    """Value of the field `set` in a manifest."""
    label: str
    folds: int


@dataclass(frozen=True)
class Recipe:
    title: str
    kind: Kind
    paper: str | None = None
    """Table of the paper to stand beside it."""
    where: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    bands: bool = False
    """Group rows by realised bitrate, as the paper's main table does."""
    extras: tuple[Extra, ...] = ()
    swap_into: tuple[str, ...] = ()
    sets: tuple[ProbeSet, ...] = ()
    rows: tuple[RecipeRow, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows if self.kind == "probing" else ():
            if row.system and Spec.parse(row.system).kind != "dtm":
                raise ConfigError(f"system = {row.system!r} in a probing recipe; allowed: a model, or dtm:MODEL")


def load(name: str) -> Recipe:
    """A recipe of the paper by name, or a YAML file of one's own."""
    path = Path(__file__).parent / f"{name}.yaml" if name in (*ORDER, *BEYOND) else Path(name)
    if not path.is_file():
        raise ConfigError(f"no recipe {name!r}; known: all, {', '.join((*ORDER, *BEYOND))}, or a YAML file")
    recipe = validation.load(Recipe, path)
    if recipe.paper is not None:
        validation.require(recipe.paper in tables(), f"{path}: paper", recipe.paper, ", ".join(tables()))
    return recipe
