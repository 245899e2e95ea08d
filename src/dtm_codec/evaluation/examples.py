"""Utterances of a run to listen to in its report, where `evaluate --save-audio` has kept them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ..metrics.base import SAMPLE_RATE
from ..speech.audio import audio_bytes, audio_info, read_audio
from ..system.optional import import_optional
from .document import Example, Version
from .summary import UTTERANCES, Summary

LONGEST_S = 15
"""Seconds of an utterance that a report carries: a page of a few megabytes can be mailed."""

REFERENCE = "Reference"


def examples(folder: Path, summary: Summary, count: int) -> tuple[Example, ...]:
    """Up to `count` utterances that all systems have audio of, from those that came out best to the worst."""
    complete = _complete(folder, summary)
    if not complete or not count:
        return ()
    ranked = sorted(complete, key=lambda utterance: _quality(complete[utterance], summary), reverse=True)
    places = np.linspace(0, len(ranked) - 1, min(count, len(ranked))).round().astype(int)
    chosen = [ranked[place] for place in places]
    names = [PurePosixPath(utterance).name for utterance in chosen]
    titles = names if len(set(names)) == len(names) else chosen
    return tuple(
        _example(folder, title, complete[utterance], summary) for title, utterance in zip(titles, chosen, strict=True)
    )


def _complete(folder: Path, summary: Summary) -> dict[str, dict[str, dict[str, Any]]]:
    """Utterance -> system -> row, of the utterances that can be heard by all systems of the run."""
    if not (folder / UTTERANCES).is_file():
        return {}
    rows: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in import_optional("pyarrow.parquet").read_table(folder / UTTERANCES).to_pylist():
        saved = (row.get("audio"), row.get("reference_audio"))
        if all(path and (folder / path).is_file() for path in saved):
            rows[row["utterance"]][row["system"]] = row
    return {utterance: found for utterance, found in rows.items() if set(found) == set(summary.systems)}


def _quality(rows: dict[str, dict[str, Any]], summary: Summary) -> float:
    """By the first metric, over all systems; utterances without a value come last."""
    if not summary.metrics:
        return 0.0
    name, info = next(iter(summary.metrics.items()))
    values = [row[name] for row in rows.values() if row.get(name) is not None]
    sign = 1 if info.higher_is_better else -1
    return sign * sum(values) / len(values) if values else float("-inf")


def _example(folder: Path, title: str, rows: dict[str, dict[str, Any]], summary: Summary) -> Example:
    reference = next(iter(rows.values()))["reference_audio"]
    shown = [name for name in summary.systems if summary.systems[name].series != REFERENCE]
    seconds = audio_info(folder / reference).duration_s
    cut = f", the first {LONGEST_S} s" if seconds > LONGEST_S else ""
    versions = [Version(REFERENCE, _sound(folder / reference))]
    versions += [_version(folder, rows[name], summary.systems[name].title, summary) for name in shown]
    return Example(f"{title}{cut}", tuple(versions))


def _version(folder: Path, row: dict[str, Any], title: str, summary: Summary) -> Version:
    bits = row["total_bits"]
    values = [] if bits is None else [("bps", f"{bits / row['seconds']:.0f}")]
    values += [
        (info.label, f"{row[name]:.{info.decimals}f}")
        for name, info in summary.metrics.items()
        if row.get(name) is not None
    ]
    heard = next((row[note] for name in summary.metrics if row.get(note := f"{name}.note")), None)
    return Version(title, _sound(folder / row["audio"]), tuple(values), heard)


def _sound(path: Path) -> bytes:
    samples, _ = read_audio(path, SAMPLE_RATE, frames=LONGEST_S * SAMPLE_RATE)  # as saved: 16 kHz
    return audio_bytes(samples, SAMPLE_RATE, ".flac")
