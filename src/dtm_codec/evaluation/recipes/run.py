"""Recipes to a report: what they share is run once, models that are not there become rows that say so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import ConfigError, DataError, DTMCodecError
from ...speech.utterance import Utterance
from ...system.locks import folder_in_use
from .. import figures, systems
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
class Choice:
    """What a row stands for here: a system, or the reason why there is none."""

    system: str | None
    note: str = ""


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
    _peers: dict[str, Choice] = field(default_factory=dict)

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

    # Systems

    def choice(self, recipe: Recipe, row: RecipeRow) -> Choice:
        if row.system:
            return self._peer(self.settings.models.put_into(row.system))
        assert row.model is not None
        model = self.settings.models.find(row.model)
        if model:
            return Choice(self._ours(model, row.options, self._rate(row)))
        missing = f"{self.settings.models.full_name(row.model)} is not trained yet"
        if row.swap:
            for name in recipe.swap_into:
                stand_in = self.settings.models.find(name)
                if stand_in:
                    note = f"{missing}; selector swapped into {self.settings.models.full_name(name)}"
                    return Choice(self._ours(stand_in, row.swap, self._rate(row) or f"bitrate={row.bps}"), note)
        return Choice(None, missing)

    def _with_seeds(self, recipe: Recipe, row: RecipeRow) -> list[RecipeRow]:
        """The row, and in tables of pairs one for each further seed that both of its models were trained with."""
        rows = [row]
        if recipe.kind == "pairs" and row.model and row.against:
            both = set(self.settings.models.seeds(row.model)) & set(self.settings.models.seeds(row.against))
            for seed in sorted(both):
                model, against = (f"{name}-seed{seed}" for name in (row.model, row.against))
                rows.append(replace(row, cells=_with_remark(row.cells, f"seed {seed}"), model=model, against=against))
        return rows

    def _rate(self, row: RecipeRow) -> str | None:
        """One tau for all utterances: calibrated if the user gave a set for that, else the one from training."""
        if row.bps is None or self.settings.calibrate is None:
            return None
        return f"bitrate={row.bps}&calibrate={self.settings.calibrate}"

    @staticmethod
    def _ours(model: str, *options: str | None) -> str:
        query = "&".join(filter(None, options))
        return f"dtm:{model}" + (f"?{query}" if query else "")

    def _peer(self, text: str) -> Choice:
        """A peer by its full name, or why it cannot run here."""
        if text not in self._peers:
            try:
                peer = systems.build(text)
                _ = peer.identity  # a program that is not installed cannot tell
                self._peers[text] = Choice(None, peer.missing) if peer.missing else Choice(peer.name)
            except DTMCodecError as error:
                self._peers[text] = Choice(None, str(error))
        return self._peers[text]

    def _judge(self, where: tuple[str, ...], recipes: Sequence[Recipe]) -> None:
        try:
            utterances = self._utterances(where)
        except DataError as error:
            self._without_data[where] = str(error)
            return
        names: dict[str, None] = {}
        for recipe in recipes:
            for row in (one for single in recipe.rows for one in self._with_seeds(recipe, single)):
                choice = self.choice(recipe, row)
                if choice.system:
                    names[choice.system] = None
                other = self.settings.models.find(row.against) if row.against else None
                if other:
                    names[f"dtm:{other}"] = None
        folder = self._run_folder(where)
        self._summaries[where] = evaluate(
            list(names),
            self.settings.metrics,
            utterances,
            folder,
            jobs=self.settings.jobs,
            device=self.settings.device,
            source=" ".join([Path(str(self.settings.data)).name, *where]),
            progress=self.progress(f"evaluate {' '.join(where)}"),
        )

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
            choice = self.choice(recipe, row)
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
        other = self.settings.models.find(row.against) if row.against else None
        if not choice.system or not other:
            return None
        summary = self._summaries[recipe.where]
        before, after = f"dtm:{other}", choice.system
        return changes(self._run_folder(recipe.where), summary, before, after)

    def _pairs(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        rows = []
        for row in recipe.rows:
            of_seeds = []
            for one in self._with_seeds(recipe, row):
                change = self._change(recipe, one, self.choice(recipe, one))
                rows.append((one.cells, change, "" if change else "one of the two models is not trained yet"))
                of_seeds += [change] if change else []
            if len(of_seeds) > 1:
                cells = _with_remark(row.cells, f"{len(of_seeds)} seeds")
                rows.append((cells, over_seeds(of_seeds), "mean of the runs above and Student's interval over them"))
        return (pairs_block("Measured here", recipe.headings, rows, self._summaries[recipe.where], "FFR→VFR"),)

    def _figure(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        summary = self._summaries[recipe.where]
        names = {c.system for row in recipe.rows if (c := self.choice(recipe, row)).system}
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
        return Extras(cache, utterances, large).cells(recipe.extras, choice.system)

    def _probing(self, recipe: Recipe) -> tuple[Block | Figure, ...]:
        from .probes import probing_block

        choices = [(row.cells, self.choice(recipe, row)) for row in recipe.rows]
        return (probing_block(recipe, choices, self.settings, self.progress("probe")),)

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


def _with_remark(cells: tuple[str, ...], remark: str) -> tuple[str, ...]:
    return (*cells[:-1], f"{cells[-1]}, {remark}")


def _empty_block(note: str) -> Block:
    return Block("Measured here", (Column("System"),), (), notes=(note,))
