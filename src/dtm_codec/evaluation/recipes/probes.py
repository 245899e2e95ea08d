"""The probing table: models x sets, accuracy and F1 (paper Table 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...speech.utterance import Utterance
from .. import systems
from ..cache import ResultCache
from ..data import read_data
from ..layouts import read_layout
from ..probing import EPOCHS, ProbeScore, embed_all, probe
from ..runner import Progress
from ..systems.base import System
from ..systems.ours import DTM
from ..systems.remembered import Remembered
from ..tables import Block, Cell, Column, Group, Row
from . import ProbeSet, Recipe

if TYPE_CHECKING:
    from .choices import Choice
    from .run import Settings

JUDGE = f"linear probe, {EPOCHS} epochs, AdamW 1e-3, folds by speaker"


def read_sets(sources: Sequence[str], sets: Sequence[ProbeSet]) -> dict[str, list[Utterance]]:
    """Utterances of each set that is at hand: from manifests with a field `set`, or NAME=FOLDER."""
    found: dict[str, list[Utterance]] = {}
    for source in sources:
        name, equals, folder = source.partition("=")
        if equals:
            found[name] = read_layout(name, Path(folder))
            continue
        for utterance in read_data(source):
            for wanted in sets:
                if utterance.set == wanted.set:
                    found.setdefault(wanted.name, []).append(utterance)
    return found


def probing_block(
    recipe: Recipe,
    choices: Sequence[tuple[tuple[str, ...], Choice]],
    settings: Settings,
    progress: Progress,
    remember: Callable[[str, System], None],
) -> Block:
    """Probe every model that is there on every set that is there; scores of a model and set are kept.

    remember: is told of every model that was probed.
    """
    sets = read_sets(settings.probes, recipe.sets)
    cache = ResultCache(settings.out / "runs" / "probes.json")
    present = [s for s in recipe.sets if s.name in sets]
    models = [choice.system for _, choice in choices if choice.system]
    total = len(models) * sum(len(sets[s.name]) for s in present)
    done = 0

    def step(count: int = 1) -> None:
        nonlocal done
        done += count
        progress(done, total)

    def score(choice: Choice, probe_set: ProbeSet) -> ProbeScore | None:
        utterances = sets[probe_set.name]
        portrait = choice.portrait
        system = Remembered(portrait) if portrait else systems.build(str(choice.system), settings.device)
        how = f"{system.name} {system.identity} {probe_set.label} {probe_set.folds}"
        key = " ".join([how, *(u.key for u in utterances)])
        if key in cache or portrait:
            step(len(utterances))
        if portrait:
            return cache.find(key, ProbeScore)
        assert isinstance(system, DTM)
        found = cache.get(
            key,
            ProbeScore,
            lambda: probe(embed_all(system, utterances, step), utterances, probe_set.label, probe_set.folds),
        )
        remember(system.name, system)
        return found

    columns = [Column(f"{s.name} {measure}", JUDGE, True) for s in recipe.sets for measure in ("ACC", "F1")]
    columns += [Column(f"ARCH {measure}", JUDGE, True) for measure in ("ACC", "F1")]

    def row(leading: tuple[str, ...], scores: dict[str, ProbeScore]) -> Row:
        values: list[float | None] = []
        for s in recipe.sets:
            values += [scores[s.name].accuracy, scores[s.name].f1] if s.name in scores else [None, None]
        means = [sum(v) / len(v) for part in (0, 1) if (v := [x for x in values[part::2] if x is not None])]
        values += means or [None, None]
        return (*map(Cell, leading), *(Cell() if v is None else Cell(f"{v:.2f}", None, JUDGE, v) for v in values))

    floor = ("Majority class", *[""] * (len(recipe.headings) - 1))
    rows = [row(floor, {s.name: _majority(sets[s.name], s.label) for s in present})]
    for cells, choice in choices:
        found = {s.name: score(choice, s) for s in present} if choice.system else {}
        rows.append(row(cells, {name: one for name, one in found.items() if one is not None}))
    notes = [f"{' '.join(cells)}: {choice.note}" for cells, choice in choices if choice.note]
    notes += [f"{s.name}: no data given" for s in recipe.sets if s.name not in sets]
    notes += [f"{s.name}: {len(sets[s.name])} utterances" for s in present]
    if len(present) < len(recipe.sets):
        notes.append("ARCH: mean over the sets at hand only")
    headings = (*map(Column, recipe.headings), *columns)
    return Block("Measured here (%)", headings, (Group(None, tuple(rows)),), notes=tuple(notes)).marked()


def _majority(utterances: Sequence[Utterance], label: str) -> ProbeScore:
    """Always the most frequent class: the floor."""
    counts = Counter(u.value(label) for u in utterances)
    share = max(counts.values()) / len(utterances)
    return ProbeScore(100 * share, 100 * 2 * share / (1 + share) / len(counts), len(counts), len(utterances))
