"""Finished runs as one report (`dtm-codec report`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError
from . import figures
from .document import Report, Section
from .examples import examples as choose_examples
from .pairs import changes, pairs_block
from .paper import reference_block
from .rendering import write
from .summary import Summary, SystemSummary
from .systems.plain import UNCODED_SERIES
from .tables import NOT_CODED, Block, Entry, systems_block

MOST_NAMED = 4
"""Systems that a headline names before it counts them."""


def compared(summary: Summary) -> str:
    """What a run compares, as a headline."""
    titles = [system.title for system in summary.systems.values() if system.series not in UNCODED_SERIES]
    titles = titles or [system.title for system in summary.systems.values()]
    if len(titles) > MOST_NAMED:
        return f"{len(titles)} codecs: {' · '.join(titles[: MOST_NAMED - 1])} and others"
    return " · ".join(titles)


def run_block(summary: Summary) -> Block:
    """All systems of a run, highest rate first, the best of the codecs marked."""
    groups: dict[str | None, list[Entry]] = {None: [], NOT_CODED: []}
    for system in summary.systems.values():
        entry = Entry((system.title,), system, note="; ".join(_oddities(system)))
        groups[NOT_CODED if system.series in UNCODED_SERIES else None].append(entry)
    for entries in groups.values():
        entries.sort(key=lambda entry: -(entry.system.bps.total if entry.system and entry.system.bps else 0.0))
    seconds = max((system.seconds for system in summary.systems.values()), default=0.0)
    title = f"{summary.utterances} utterances, {seconds:.0f} s of speech"
    return systems_block(title, ("System",), [(name, rows) for name, rows in groups.items() if rows], [summary])


def _oddities(system: SystemSummary) -> list[str]:
    found = list(system.remarks)
    if system.failures and not system.remarks:  # a remark has said which files are missing
        found.append(f"failed on {len(system.failures)} utterances, first: {next(iter(system.failures.values()))}")
    if system.bps is None and system.utterances:
        found.append("its rate is not known; give bps=N, or {bits} in a command")
    return found


def make_report(
    folders: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    examples: int = 4,
    baseline: str | None = None,
    paper: bool = False,
) -> list[Path]:
    """Tables of all runs, utterances to hear, and their rate-distortion figure; returns the files.

    examples: how many utterances of each run. baseline: a system of the runs that all others are compared with,
    utterance by utterance. paper: add the paper's main table and curves.
    """
    summaries = [Summary.load(folder) for folder in folders]
    known = {name: None for summary in summaries for name in summary.systems}
    if baseline is not None and baseline not in known:
        raise ConfigError(f"baseline {baseline!r}; allowed: {', '.join(known)}")
    out.mkdir(parents=True, exist_ok=True)
    sections = []
    for folder, summary in zip(folders, summaries, strict=True):
        sections.append(_scores(folder, summary, alone=len(folders) == 1))
        if baseline is not None and baseline in summary.systems:
            sections.append(_compared_with(baseline, folder, summary))
        sections += _listening(folder, summary, examples, alone=len(folders) == 1)
    figure = figures.rate_distortion(summaries, out, paper=paper)
    if figure:
        sections.append(Section("Rate and distortion", "", (figure,)))
    if paper:
        sections.append(Section("The paper's main table", "", (reference_block("main"),)))
    headline = title or (compared(summaries[0]) if len(summaries) == 1 else "Evaluation of speech codecs")
    text = (
        "Bits are counted from what is transmitted; position is timing side information. The best value of a column "
        "is on blue, the second best underlined. A click on a heading sorts."
    )
    return write(Report(headline, text, tuple(sections)), out)


def _scores(folder: Path, summary: Summary, alone: bool) -> Section:
    where = summary.source or str(folder)
    text = f"{summary.utterances} utterances of {where}. Means with 95 % bootstrap intervals over utterances."
    return Section("Scores" if alone else compared(summary), text, (run_block(summary),))


def _compared_with(baseline: str, folder: Path, summary: Summary) -> Section:
    first = summary.systems[baseline]
    rows = []
    for name, system in summary.systems.items():
        if name != baseline and system.series not in UNCODED_SERIES:
            change = changes(folder, summary, baseline, name)
            rows.append(((system.title,), change, "" if change else "no utterance that both have"))
    text = f"Each system against {first.title} on the same utterances. An interval without 0 is a difference."
    block = pairs_block("Changes", ("System",), rows, summary, f"{first.title}→system")
    return Section(f"Compared with {first.title}", text, (block,))


def _listening(folder: Path, summary: Summary, count: int, alone: bool) -> list[Section]:
    chosen = choose_examples(folder, summary, count)
    if not chosen:
        return []
    by = f", by {next(iter(summary.metrics.values())).label}" if summary.metrics else ""
    text = f"{len(chosen)} of {summary.utterances} utterances, from those that came out best to the worst{by}."
    return [Section("Listen" if alone else f"Listen: {compared(summary)}", text, chosen)]
