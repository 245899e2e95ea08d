"""Systems x utterances x metrics: in parallel, resumable, nothing done twice (`dtm-codec evaluate`)."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from .. import metrics
from ..errors import AudioError, DTMCodecError
from ..metrics import Metric, Sample
from ..metrics.base import SAMPLE_RATE
from ..speech.audio import Samples, read_audio
from . import systems
from .data import Utterance
from .journal import Header, Journal, Result
from .summary import Summary, summarise
from .systems import System

JOURNAL = "journal.jsonl"

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


def evaluate(
    system_names: Sequence[str],
    metric_names: Sequence[str],
    utterances: Sequence[Utterance],
    out: Path,
    *,
    jobs: int = 1,
    device: str = "cpu",
    source: str = "",
    progress: Progress | None = None,
) -> Summary:
    """Run what is missing and write `utterances.parquet` and `summary.json` into `out`."""
    judged = list({system.name: system for name in system_names for system in [systems.build(name, device)]}.values())
    judges = metrics.build_all(metric_names)
    out.mkdir(parents=True, exist_ok=True)
    header = Header({s.name: s.identity for s in judged}, {m.name: m.judge for m in judges})
    journal = Journal(out / JOURNAL, header)
    keys = {u.key: u for u in utterances}
    tasks = [
        _Task(number, system.name, utterance, key, missing)
        for key, utterance in keys.items()
        for number, system in enumerate(judged)
        if (missing := tuple(journal.missing(system.name, key)))
    ]
    total = len(keys) * len(judged)
    done = total - len(tasks)
    try:
        if progress:
            progress(done, total)
        for result in _run(tasks, judged, judges, jobs, device):
            journal.add(result)
            done += 1
            if progress:
                progress(done, total)
    finally:
        journal.close()
    return summarise(journal.results, judged, judges, keys, out, source)


def _run(tasks: list[_Task], judged: list[System], judges: list[Metric], jobs: int, device: str) -> Iterator[Result]:
    if not tasks:
        return
    if jobs <= 1 or len(tasks) == 1:
        worker = _Worker(judged, judges)
        yield from map(worker, tasks)
        return
    # spawned, not forked: torch and onnxruntime threads do not survive a fork
    context = multiprocessing.get_context("spawn")
    recipe = ([s.settled_name for s in judged], device, [m.spec.text for m in judges])
    with ProcessPoolExecutor(jobs, context, initializer=_start_worker, initargs=recipe) as pool:
        try:
            for future in as_completed([pool.submit(_work, task) for task in tasks]):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Worker:
    """Holds loaded systems and metrics, and the last utterance's audio."""

    def __init__(self, judged: Sequence[System], judges: Sequence[Metric]) -> None:
        self._systems = judged
        self._metrics = {metric.name: metric for metric in judges}
        for metric in judges:
            metric.load()
        self._last: tuple[str, Samples] | None = None

    def __call__(self, task: _Task) -> Result:
        """Encode, decode and judge."""
        system = self._systems[task.system]
        result = Result(task.name, task.key)
        try:
            reference = self._audio(task)
            coded = system.encode(reference)
            decoded = system.decode(coded)
        except DTMCodecError as error:
            result.error = str(error)
            return result
        assert decoded.shape == reference.shape, f"{task.name}: {decoded.shape} samples for {reference.shape}"
        result.seconds = coded.duration_s
        result.content_bits, result.position_bits = coded.bits.content, coded.bits.position
        result.written_bits = coded.written
        sample = Sample(decoded, reference, task.utterance.text, task.utterance.language)
        for name in task.metrics:
            try:
                result.scores[name] = self._metrics[name].score(sample)
            except AudioError:  # this judge has no value for this audio: too short, or silent
                result.scores[name] = None
        return result

    def _audio(self, task: _Task) -> Samples:
        """The same array for all systems that follow each other, so that metrics may keep what they know of it."""
        if self._last is None or self._last[0] != task.key:
            self._last = (task.key, read_audio(task.utterance.path, SAMPLE_RATE)[0])
        return self._last[1]


_worker: Callable[[_Task], Result]
"""Of this process."""


def _start_worker(system_names: list[str], device: str, metric_names: list[str]) -> None:
    """Load everything in a new process, which ends when its parent does, even by kill -9."""
    global _worker
    import torch

    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    try:
        _worker = _Worker([systems.build(name, device) for name in system_names], metrics.build_all(metric_names))
    except DTMCodecError as error:
        message = str(error)

        def refuse(task: _Task) -> Result:
            raise DTMCodecError(message)

        _worker = refuse


def _work(task: _Task) -> Result:
    return _worker(task)
