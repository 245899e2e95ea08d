"""Systems x utterances x metrics: in parallel, resumable, nothing done twice (`dtm-codec evaluate`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import metrics
from ..errors import AudioError, DTMCodecError
from ..metrics import Metric, Sample
from ..metrics.base import SAMPLE_RATE
from ..speech.audio import Samples
from ..speech.utterance import Utterance
from ..system.locks import folder_in_use
from ..system.workers import run_in_processes
from . import systems
from .journal import Journal, JudgedUtterance
from .saved_audio import SavedAudio, save
from .summary import Summary, summarise
from .systems import System
from .systems.remembered import Portrait, Remembered

JOURNAL = "journal.sqlite"

Progress = Callable[[int, int], None]
"""Called with pairs of system and utterance done so far, and in all."""


@dataclass(frozen=True)
class _Task:
    """One utterance through one system, for the metrics that it still lacks."""

    system: int
    """Its place in the list."""
    name: str
    utterance: Utterance
    key: str
    metrics: tuple[str, ...]
    decoded_path: Path | None = None
    reference_path: Path | None = None
    """Where to keep the audio, if it is to be kept."""


def evaluate(
    system_names: Sequence[str],
    metric_names: Sequence[str],
    utterances: Sequence[Utterance],
    out: Path,
    *,
    jobs: int = 1,
    device: str = "cpu",
    source: str = "",
    save_audio: bool = False,
    progress: Progress | None = None,
    remembered: Sequence[Portrait] = (),
) -> Summary:
    """Run what is missing and write `utterances.parquet` and `summary.json` into `out`.

    save_audio: keep what was decoded, and the references, in `out/audio`.
    remembered: systems that are not at hand any more; what `out` has of them stays in the results.
    """
    with folder_in_use(out):
        return _evaluate(
            system_names, metric_names, utterances, out, jobs, device, source, save_audio, progress, remembered
        )


def _evaluate(
    system_names: Sequence[str],
    metric_names: Sequence[str],
    utterances: Sequence[Utterance],
    out: Path,
    jobs: int,
    device: str,
    source: str,
    save_audio: bool,
    progress: Progress | None,
    remembered: Sequence[Portrait],
) -> Summary:
    able = list({system.name: system for name in system_names for system in [systems.build(name, device)]}.values())
    judged = [*able, *map(Remembered, remembered)]
    judges = metrics.build_all(metric_names)
    remarks = {system.name: system.expect([u.id for u in utterances]) for system in judged}
    journal = Journal(out / JOURNAL, {s.name: s.identity for s in judged}, {m.name: m.judge for m in judges})
    keys = {u.key: u for u in utterances}
    saved = SavedAudio(out, judged, keys)
    tasks = []
    for key, utterance in keys.items():
        for number, system in enumerate(able):
            missing = tuple(journal.missing(system.name, key))
            if (system.name, key) not in journal.results:
                saved.forget(system.name, key)
            paths = (saved.decoded(system.name, key), saved.reference(key)) if save_audio else ()
            if missing or not all(path.exists() for path in paths):
                tasks.append(_Task(number, system.name, utterance, key, missing, *paths))
    total = len(keys) * len(able)
    done = total - len(tasks)
    with closing(journal), closing(_run(tasks, able, judges, jobs, device, keys)) as results:
        if progress:
            progress(done, total)
        for result in results:
            journal.add(result)
            done += 1
            if progress:
                progress(done, total)
    return summarise(journal.results, judged, judges, keys, out, source, saved, remarks)


def _run(
    tasks: list[_Task],
    judged: list[System],
    judges: list[Metric],
    jobs: int,
    device: str,
    utterances: Mapping[str, Utterance],
) -> Generator[JudgedUtterance, None, None]:
    if not tasks:
        return
    if jobs <= 1 or len(tasks) == 1:
        worker = _Worker(judged, judges)
        yield from map(worker, tasks)
        return
    ids = [utterance.id for utterance in utterances.values()]
    start = partial(_start_worker, [s.settled_name for s in judged], device, [m.spec.text for m in judges], ids)
    yield from run_in_processes(start, tasks, jobs)


class _Worker:
    """Holds loaded systems and metrics, and the last utterance's audio."""

    def __init__(self, judged: Sequence[System], judges: Sequence[Metric]) -> None:
        self._systems = judged
        self._metrics = {metric.name: metric for metric in judges}
        for metric in judges:
            metric.load()
        self._last: tuple[str, Samples] | None = None

    def __call__(self, task: _Task) -> JudgedUtterance:
        system = self._systems[task.system]
        result = JudgedUtterance(task.name, task.key)
        try:
            reference = self._audio(task)
            coded, decoded = system.round_trip(reference, task.utterance.id)
            if task.decoded_path and task.reference_path:
                save(task.decoded_path, decoded)
                if not task.reference_path.exists():
                    save(task.reference_path, reference)
        except DTMCodecError as error:
            result.error = str(error)
            return result
        assert decoded.shape == reference.shape, f"{task.name}: {decoded.shape} samples for {reference.shape}"
        result.seconds = coded.duration_s
        bits = coded.bits
        result.content_bits, result.position_bits = (bits.content, bits.position) if bits else (None, None)
        result.written_bits = coded.written
        sample = Sample(decoded, reference, task.utterance.text, task.utterance.language)
        for name in task.metrics:
            try:
                result.scores[name] = self._metrics[name].score(sample)
            except AudioError:  # this judge has no value for this audio: too short, or silent
                result.scores[name] = None
        return result

    def _audio(self, task: _Task) -> Samples:
        """The same array for all systems in a row, so that metrics can reuse what they computed from it."""
        if self._last is None or self._last[0] != task.key:
            self._last = (task.key, task.utterance.read_whole(SAMPLE_RATE)[0])
        return self._last[1]


def _start_worker(
    system_names: Sequence[str], device: str, metric_names: Sequence[str], utterances: Sequence[str]
) -> _Worker:
    judged = [systems.build(name, device) for name in system_names]
    for system in judged:
        system.expect(utterances)
    return _Worker(judged, metrics.build_all(metric_names))
