"""Finished runs as one report (`dtm-codec report`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import figures
from .paper import reference_block
from .rendering import Report, Section
from .summary import Summary
from .tables import Block, Entry, systems_block


def run_section(summary: Summary, title: str) -> tuple[Block, ...]:
    entries = [
        Entry((system.title,), system, missing=_failures(system.failures)) for system in summary.systems.values()
    ]
    entries.sort(key=lambda entry: -(entry.system.bps.total if entry.system and entry.system.bps else 0.0))
    return (systems_block(title, ("System",), [(None, entries)], [summary], marks=False),)


def _failures(failures: dict[str, str]) -> str:
    if not failures:
        return ""
    return f"failed on {len(failures)} utterances, first: {next(iter(failures.values()))}"


def make_report(folders: Sequence[Path], out: Path) -> list[Path]:
    """Tables of all runs, their rate-distortion figure, and the paper's main table beside them; returns the files."""
    summaries = [Summary.load(folder) for folder in folders]
    out.mkdir(parents=True, exist_ok=True)
    sections = []
    for folder, summary in zip(folders, summaries, strict=True):
        where = summary.source or str(folder)
        text = f"{summary.utterances} utterances of {where}. Means with 95 % bootstrap intervals over utterances."
        sections.append(Section(folder.name, text, run_section(summary, where)))
    figure = figures.rate_distortion(summaries, out)
    if figure:
        sections.append(Section("Rate and distortion", "", (figure,)))
    sections.append(Section("The paper's main table", "", (reference_block("main"),)))
    text = "Bits are counted from what is transmitted; position is timing side information."
    return Report("Evaluation of speech codecs", text, tuple(sections)).write(out)
