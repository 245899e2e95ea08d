"""Recipes to a report: what they share is run once, models that are not there become rows that say so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ConfigError, DataError
from ...speech.utterance import Utterance
from ...system.locks import folder_in_use
from .. import figures
from ..cache import ResultCache
from ..data import read_data
from ..document import Figure, Report, Section
from ..models import Models
from ..pairs import Change, changes, over_seeds, pairs_block
from ..paper import reference_block
from ..rendering import write
from ..runner import Progress, evaluate
from ..summary import Summary
from ..systems.plain import UNCODED_SERIES
from ..tables import NOT_CODED, Block, Cell, Column, Entry, grouped, systems_block
from . import Recipe, RecipeRow
from .choices import Choice, Choices, with_remark
from .extras import COLUMNS, Extras

BANDS = {
    1020: "Total bitrate > 1.0 kbps",
    784: "0.8 kbps ≤ total bitrate ≤ 1.0 kbps",
    490: "0.5 kbps ≤ total bitrate < 0.8 kbps",
    0: "Total bitrate < 0.5 kbps",
}
"""Lowest bps of each band of the paper's main table; 2 % aside, for rates that are met on average."""
JUDGED = ("systems", "pairs", "figure")
"""Kinds of recipes that need a test set."""
NOT_THERE = "Not at hand"


@dataclass(frozen=True)
class Settings:
    models: Models
    metrics: Sequence[str]
    out: Path
    data: str | None = None
    calibrate: str | None = None
    """Set on which the tau of VFR models is calibrated to the recipe's rates."""
    codes_data: str | None = None
    """Larger set for codebook utilisation."""
    probes: Sequence[str] = ()
    """A manifest, or NAME=FOLDER of a published set."""
    ratings: Path | None = None
    jobs: int = 1
    device: str = "cpu"
    """Where systems and probes run; speed is always measured on the CPU."""


@dataclass
class RecipeRunner:
    """Runs recipes; each test set is judged once for all of them."""

    settings: Settings
    progress: Callable[[str], Progress]
    """Progress callback for a named piece of work."""
    _summaries: dict[tuple[str, ...], Summary] = field(default_factory=dict)
    _without_data: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Conditions that no utterance of the test set meets."""
    choices: Choices = field(init=False)

    def __post_init__(self) -> None:
        self.choices = Choices(self.settings.models, self.settings.calibrate, self.settings.out)

    def run(self, recipes: Sequence[Recipe]) -> list[Path]:
        with folder_in_use(self.settings.out):
            return self._run(recipes)

    def _run(self, recipes: Sequence[Recipe]) -> list[Path]:
        judged = [r for r in recipes if r.kind in JUDGED]
        if judged and self.settings.data is None:
            raise ConfigError("these recipes need a test set: give --data MANIFEST or a folder")
        for where in dict.fromkeys(r.where for r in judged):
            self._judge(where, [r for r in judged if r.where == where])
        sections = tuple(Section(r.title, self._text(r), self._items(r)) for r in recipes)
        text = (
            "Measured rows come from the models and test sets at hand; reference rows are the paper's, by its own "
            "judges on its own test set, and stand in tables of their own. Bits are counted from what is transmitted."
        )
        return write(Report("DTM-Codec: the paper's results", text, sections), self.settings.out)

    def _judge(self, where: tuple[str, ...], recipes: Sequence[Recipe]) -> None:
        try:
            utterances = self._utterances(where)
        except DataError as error:
            self._without_data[where] = str(error)
            return
        chosen: dict[str, Choice] = {}
        for recipe in recipes:
            for row in (one for single in recipe.rows for one in self.choices.of_seeds(recipe, single)):
                for choice in (self.choices.of(recipe, row), self.choices.compared(row)):
                    if choice.system:
                        chosen[choice.system] = choice
        folder = self._run_folder(where)
        self._summaries[where] = evaluate(
            [name for name, choice in chosen.items() if choice.portrait is None],
            self.settings.metrics,
            utterances,
            folder,
            jobs=self.settings.jobs,
            device=self.settings.device,
            source=" ".join([Path(str(self.settings.data)).name, *where]),
            progress=self.progress(f"evaluate {' '.join(where)}"),
            remembered=[choice.portrait for choice in chosen.values() if choice.portrait is not None],
        )
        for name, system in self._summaries[where].systems.items():
            self.choices.remember(name, system)

    def _run_folder(self, where: tuple[str, ...]) -> Path:
        return self.settings.out / "runs" / (re.sub(r"[^\w.-]+", "-", "_".join(where).replace("!=", "-not-")) or "all")

    def _utterances(self, where: tuple[str, ...]) -> list[Utterance]:
        assert self.settings.data is not None
        return read_data(self.settings.data, where)

    # Results

    def _text(self, recipe: Recipe) -> str:
        summary = self._summaries.get(recipe.where) if recipe.kind in JUDGED else None
        if summary is None:
            return ""
        return f"{summary.utterances} utterances of {summary.source}; means with 95 % bootstrap intervals."

    def _items(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        make = {
            "systems": self._systems,
            "pairs": self._pairs,
            "figure": self._figure,
            "probing": self._probing,
            "listening": self._listening,
        }[recipe.kind]
        reference = (reference_block(recipe.paper),) if recipe.paper else ()
        if recipe.kind in JUDGED and recipe.where in self._without_data:
            return (_empty_block(self._without_data[recipe.where]), *reference)
        return (*make(recipe), *reference)

    def _systems(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        summary = self._summaries[recipe.where]
        entries = []
        for row in recipe.rows:
            choice = self.choices.of(recipe, row)
            result = summary.systems[choice.system] if choice.system else None
            change = self._change(recipe, row, choice)
            texts = {name: metric.text for name, metric in change.by_metric.items()} if change else None
            entry = Entry(row.cells, result, self._extras(recipe, choice), choice.note, texts)
            entries.append((_band(entry) if recipe.bands else row.group, entry))
        groups = grouped(entries)
        if recipe.bands:
            order = [NOT_CODED, *BANDS.values(), NOT_THERE]
            groups.sort(key=lambda group: order.index(str(group[0])))
        extras = [column for extra in recipe.extras for column in COLUMNS[extra]]
        relative = any(row.against for row in recipe.rows)
        notes = ["VFR rows: change from FFR with its 95 % interval; rates as in the table"] if relative else []
        return (systems_block("Measured here", recipe.headings, groups, [summary], extras, notes),)

    def _change(self, recipe: Recipe, row: RecipeRow, choice: Choice) -> Change | None:
        before = self.choices.compared(row).system
        if not choice.system or not before:
            return None
        return changes(self._run_folder(recipe.where), self._summaries[recipe.where], before, choice.system)

    def _pairs(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        rows = []
        for row in recipe.rows:
            of_seeds = []
            for one in self.choices.of_seeds(recipe, row):
                change = self._change(recipe, one, self.choices.of(recipe, one))
                rows.append((one.cells, change, "" if change else "one of the two models is not trained yet"))
                of_seeds += [change] if change else []
            if len(of_seeds) > 1:
                cells = with_remark(row.cells, f"{len(of_seeds)} seeds")
                rows.append((cells, over_seeds(of_seeds), "mean of the runs above and Student's interval over them"))
        return (pairs_block("Measured here", recipe.headings, rows, self._summaries[recipe.where], "FFR→VFR"),)

    def _figure(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        summary = self._summaries[recipe.where]
        names = {c.system for row in recipe.rows if (c := self.choices.of(recipe, row)).system}
        shown = {name: system for name, system in summary.systems.items() if name in names}
        subset = Summary(summary.source, summary.utterances, summary.metrics, shown)
        figure = figures.rate_distortion([subset], self.settings.out, paper=True)
        entries = [Entry((system.title,), system) for system in shown.values()]
        points = systems_block("Points of the figure", ("System",), [(None, entries)], [summary], marks=False)
        return (*((figure,) if figure else ()), points)

    def _extras(self, recipe: Recipe, choice: Choice) -> tuple[Cell, ...]:
        if not recipe.extras or not choice.system:
            return ()
        utterances = self._utterances(recipe.where)
        large = read_data(self.settings.codes_data) if self.settings.codes_data else utterances
        cache = ResultCache(self.settings.out / "runs" / "diagnostics.json")
        return Extras(cache, utterances, large).cells(recipe.extras, choice)

    def _probing(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        from .probes import probing_block

        choices = [(row.cells, self.choices.of(recipe, row)) for row in recipe.rows]
        return (probing_block(recipe, choices, self.settings, self.progress("probe"), self.choices.remember),)

    def _listening(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        from ...ratings import read_ratings
        from ..listening import listening_block

        if self.settings.ratings is None:
            note = "No ratings given: run `dtm-codec listening`, then pass its CSV with --ratings."
            return (_empty_block(note),)
        return (listening_block(read_ratings(self.settings.ratings)),)


def _band(entry: Entry) -> str:
    if entry.system is None or entry.system.bps is None:
        return NOT_THERE
    if entry.system.series in UNCODED_SERIES:
        return NOT_CODED
    total = entry.system.bps.total
    return next(title for lowest, title in BANDS.items() if total >= lowest)


def _empty_block(note: str) -> Block:
    return Block("Measured here", (Column("System"),), (), notes=(note,))
