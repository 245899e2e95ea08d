"""A finished run: `utterances.parquet` with every value, and `summary.json` with means and 95 % intervals."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from .. import validation
from ..errors import ConfigError, DTMCodecError
from ..metrics import Metric
from ..metrics.intervals import Estimate, weighted_mean
from ..speech.utterance import Utterance
from ..system.files import atomic_path, write_atomically
from ..system.optional import import_optional
from .journal import JudgedUtterance
from .saved_audio import SavedAudio
from .systems import System

SUMMARY, UTTERANCES = "summary.json", "utterances.parquet"


class SummaryError(DTMCodecError):
    """A folder that holds no finished run."""


@dataclass(frozen=True)
class MetricInfo:
    label: str
    unit: str
    higher_is_better: bool
    decimals: int
    judge: str


@dataclass(frozen=True)
class JudgedEstimate(Estimate):
    judge: str


@dataclass(frozen=True)
class Bps:
    """Bits a second of a set: total bits / total duration."""

    content: float
    position: float
    total: float
    written: float
    """Payload as the format writes it."""


@dataclass(frozen=True)
class SystemSummary:
    title: str
    series: str
    identity: str
    parameters: int | None
    utterances: int
    seconds: float
    failures: dict[str, str]
    """Utterance -> why the system failed on it."""
    bps: Bps | None
    """None if it failed on all, or if nobody knows what was transmitted."""
    metrics: dict[str, JudgedEstimate]
    remarks: tuple[str, ...] = ()
    """What was odd: files that are missing or too many."""


@dataclass(frozen=True)
class Summary:
    source: str
    utterances: int
    metrics: dict[str, MetricInfo]
    systems: dict[str, SystemSummary]
    format: Literal[1] = 1

    def save(self, folder: Path) -> None:
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)
        write_atomically(folder / SUMMARY, text.encode() + b"\n")

    @staticmethod
    def load(folder: Path) -> Summary:
        try:
            return validation.load(Summary, folder / SUMMARY)
        except ConfigError as error:
            raise SummaryError(f"{folder} holds no finished run that this version can read ({error})") from None


def summarise(
    results: Mapping[tuple[str, str], JudgedUtterance],
    systems: Sequence[System],
    metrics: Sequence[Metric],
    utterances: Mapping[str, Utterance],
    out: Path,
    source: str,
    saved: SavedAudio,
    remarks: Mapping[str, Sequence[str]],
) -> Summary:
    """Write both files from the results of these systems on these utterances. remarks: by name of the system."""
    chosen = [results[system.name, key] for system in systems for key in utterances if (system.name, key) in results]
    _write_utterances(chosen, metrics, utterances, out / UTTERANCES, saved)
    summaries = {
        s.name: _summary_of(
            s, [r for r in chosen if r.system == s.name], metrics, utterances, tuple(remarks.get(s.name, ()))
        )
        for s in systems
    }
    infos = {m.name: MetricInfo(m.label, m.unit, m.higher_is_better, m.decimals, m.judge) for m in metrics}
    summary = Summary(source, len(utterances), infos, _told_apart(summaries))
    summary.save(out)
    return summary


def _told_apart(systems: dict[str, SystemSummary]) -> dict[str, SystemSummary]:
    """The same, but what has the title of another is named by its identity too, as two models called `small`."""
    titles: dict[str, set[str]] = {}
    for system in systems.values():
        titles.setdefault(system.title, set()).add(system.identity)
    alike = set().union(*(identities for identities in titles.values() if len(identities) > 1))
    return {
        name: replace(s, title=_named(s.title, s.identity), series=_named(s.series, s.identity))
        if s.identity in alike
        else s
        for name, s in systems.items()
    }


def _named(title: str, identity: str) -> str:
    """With the identity at its end, once."""
    ending = f" ({identity})"
    return title.removesuffix(ending) + ending


def _summary_of(
    system: System,
    results: list[JudgedUtterance],
    metrics: Sequence[Metric],
    utterances: Mapping[str, Utterance],
    remarks: tuple[str, ...],
) -> SystemSummary:
    good = [result for result in results if result.error is None]
    seconds = sum(result.seconds for result in good)
    estimates = {}
    for metric in metrics:
        scores = [score for result in good if (score := result.scores.get(metric.name)) is not None]
        if scores:
            estimate = weighted_mean([s.value for s in scores], [s.weight for s in scores])
            estimates[metric.name] = JudgedEstimate(**vars(estimate), judge=metric.judge)
    bits = [(r.content_bits, r.position_bits, r.written_bits) for r in good]
    known = [(c, p, w) for c, p, w in bits if c is not None and p is not None and w is not None]
    bps = None
    if good and len(known) == len(good):
        content, position, written = (sum(column) / seconds for column in zip(*known, strict=True))
        bps = Bps(content, position, content + position, written)
    return SystemSummary(
        system.title,
        system.series,
        system.identity,
        system.parameters if good else None,
        len(good),
        seconds,
        {utterances[result.utterance].id: result.error for result in results if result.error is not None},
        bps,
        estimates,
        remarks,
    )


def _write_utterances(
    results: list[JudgedUtterance],
    metrics: Sequence[Metric],
    utterances: Mapping[str, Utterance],
    path: Path,
    saved: SavedAudio,
) -> None:
    arrow, parquet = import_optional("pyarrow"), import_optional("pyarrow.parquet")
    rows: list[dict[str, Any]] = []
    for result in results:
        utterance = utterances[result.utterance]
        row: dict[str, Any] = {
            "system": result.system,
            "utterance": utterance.id,
            "set": utterance.set,
            "lang": utterance.language,
            "speaker": utterance.speaker,
            "seconds": result.seconds,
            "content_bits": result.content_bits,
            "position_bits": result.position_bits,
            "total_bits": None if result.content_bits is None else result.content_bits + (result.position_bits or 0),
            "written_bits": result.written_bits,
            "error": result.error,
            "audio": _relative(saved.decoded(result.system, result.utterance), path.parent),
            "reference_audio": _relative(saved.reference(result.utterance), path.parent),
        }
        for metric in metrics:
            score = result.scores.get(metric.name)
            row[metric.name] = score.value if score else None
            row[f"{metric.name}.weight"] = score.weight if score else None
            row[f"{metric.name}.note"] = score.note if score else None
        rows.append(row)
    kinds = {"bits": arrow.int64(), "seconds": arrow.float64(), "weight": arrow.float64()}
    names = {metric.name: arrow.float64() for metric in metrics}
    schema = arrow.schema(
        [
            (name, names.get(name) or kinds.get(re.split(r"[._]", name)[-1], arrow.string()))
            for name in (rows[0] if rows else {})
        ]
    )
    with atomic_path(path) as temporary:
        parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), temporary)


def _relative(audio: Path, folder: Path) -> str | None:
    """A file of the run, if it is there."""
    return audio.relative_to(folder).as_posix() if audio.is_file() else None
