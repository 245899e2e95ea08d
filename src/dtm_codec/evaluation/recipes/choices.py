"""What the rows of recipes stand for: models and peers that are at hand, or what earlier runs left of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import ConfigError, DTMCodecError
from .. import systems
from ..cache import ResultCache
from ..models import Models
from ..summary import SystemSummary
from ..systems.base import System
from ..systems.remembered import Portrait
from . import Recipe, RecipeRow


@dataclass(frozen=True)
class Choice:
    """What a row stands for here: a system, or the reason why there is none."""

    system: str | None
    note: str = ""
    portrait: Portrait | None = None
    """Of a system that is not at hand any more, but whose results are."""


def judged_models(report: Path) -> set[str]:
    """Names of all that a report keeps results of, our models as their family calls them: s-vfr-25, s-vfr-25-seed2."""
    known = _known_systems(report)
    if not known.is_file():
        raise ConfigError(f"{report} holds no report of dtm-codec recipe run")
    return {key.partition("?")[0] for key in ResultCache(known)}


def _known_systems(report: Path) -> Path:
    return report / "runs" / "systems.json"


class Choices:
    def __init__(self, models: Models, calibrate: str | None, report: Path) -> None:
        """calibrate: set on which tau is found for a row's rate; report: folder that keeps which system a row was."""
        self._models, self._calibrate = models, calibrate
        self._known = ResultCache(_known_systems(report))
        self._keys: dict[str, str] = {}
        """System at hand -> its row, as it is kept."""
        self._peers: dict[str, Choice] = {}

    def of(self, recipe: Recipe, row: RecipeRow) -> Choice:
        if row.system:
            return self._peer(self._models.put_into(row.system))
        assert row.model is not None
        own = self._ours(row.model, row.options, row.bps)
        if own.system or not row.swap:
            return own
        for name in recipe.swap_into:
            stand_in = self._ours(name, row.swap, row.bps, each=True)
            if stand_in.system:
                note = f"{own.note}; selector swapped into {self._models.full_name(name)}"
                return replace(stand_in, note=note)
        return own

    def compared(self, row: RecipeRow) -> Choice:
        """What the row's change is relative to."""
        return self._ours(row.against) if row.against else Choice(None)

    def of_seeds(self, recipe: Recipe, row: RecipeRow) -> list[RecipeRow]:
        """The row, and in tables of pairs one for each further seed that both of its models were trained with."""
        rows = [row]
        if recipe.kind == "pairs" and row.model and row.against:
            for seed in sorted(self._seeds(row.model) & self._seeds(row.against)):
                model, against = (f"{name}-seed{seed}" for name in (row.model, row.against))
                rows.append(replace(row, cells=with_remark(row.cells, f"seed {seed}"), model=model, against=against))
        return rows

    def remember(self, name: str, system: SystemSummary | System) -> None:
        """Keep which system a row was, so that its results can be found when it is not at hand."""
        if name in self._keys:
            portrait = Portrait(name, system.title, system.series, system.identity, system.parameters)
            self._known.put(self._keys[name], portrait)

    def _seeds(self, name: str) -> set[int]:
        pattern = re.compile(re.escape(self._models.full_name(name)) + r"-seed(\d+)(\?.*)?")
        earlier = (pattern.fullmatch(key) for key in self._known)
        return {*self._models.seeds(name), *(int(match[1]) for match in earlier if match)}

    def _ours(self, name: str, options: str | None = None, bps: int | None = None, *, each: bool = False) -> Choice:
        """Our model of that name. bps: the rate that one tau shall give the calibration set; without such a set the tau
        of training serves, or with `each` every utterance meets the rate."""
        parts, kept_parts = [options], [options]
        if bps is not None and self._calibrate is not None:
            parts.append(f"bitrate={bps}&calibrate={self._calibrate}")
            kept_parts.append(f"bitrate={bps}&calibrate={Path(self._calibrate).name}")  # wherever that set lies
        elif bps is not None and each:
            parts.append(f"bitrate={bps}")
            kept_parts.append(f"bitrate={bps}")
        full = self._models.full_name(name)
        key = _with_query(full, kept_parts)
        folder = self._models.find(name)
        if folder is None:
            return self._earlier(key, f"{full} is not trained yet")
        system = _with_query(f"dtm:{folder}", parts)
        self._keys[system] = key
        return Choice(system)

    def _peer(self, text: str) -> Choice:
        """A peer by its full name, or why it cannot run here."""
        if text not in self._peers:
            try:
                peer = systems.build(text)
                _ = peer.identity  # a program that is not installed cannot tell
                missing = peer.missing
            except DTMCodecError as error:
                missing = str(error)
            if missing:
                self._peers[text] = self._earlier(text, missing)
            else:
                self._keys[peer.name] = text
                self._peers[text] = Choice(peer.name)
        return self._peers[text]

    def _earlier(self, key: str, missing: str) -> Choice:
        portrait = self._known.find(key, Portrait)
        if portrait is None:
            return Choice(None, missing)
        return Choice(portrait.name, "measured earlier, not at hand any more", portrait)


def with_remark(cells: tuple[str, ...], remark: str) -> tuple[str, ...]:
    return (*cells[:-1], f"{cells[-1]}, {remark}")


def _with_query(text: str, parts: list[str | None]) -> str:
    query = "&".join(filter(None, parts))
    return f"{text}?{query}" if query else text
