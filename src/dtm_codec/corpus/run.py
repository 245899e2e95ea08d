"""Tokenize a corpus: plan, do the shards that are missing, sum up."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from ..config import BackendName, CodecConfig, SelectorName
from ..system.files import remove_leftovers, write_atomically
from ..system.locks import folder_in_use
from ..system.threads import available_cores
from ..system.workers import run_in_processes
from . import ray_engine
from .errors import CorpusError
from .manifest import Manifest
from .parts import Compare, Source
from .plan import Shard, ShardPlan
from .schema import ShardReport, read_footer
from .sources import open_source
from .worker import FinishedShard, ShardWorker, TokenizeJob

if TYPE_CHECKING:
    from ..codec import DTMCodec

METADATA_FILE, LISTING_FILE, DATA_FOLDER = "metadata.json", "files.jsonl", "data"


@dataclass(frozen=True)
class Progress:
    shards: int
    shards_done: int
    report: ShardReport
    """Of this run; what an earlier one did is not counted."""
    speech_hours: float
    wall_hours: float
    core_hours: float

    @property
    def hours_per_hour(self) -> float:
        return self.speech_hours / self.wall_hours if self.wall_hours else 0.0

    @property
    def hours_per_core_hour(self) -> float:
        """Hours of speech in an hour of one core's time."""
        return self.speech_hours / self.core_hours if self.core_hours else 0.0


@dataclass(frozen=True)
class TokenizedCorpus:
    folder: Path
    metadata: dict[str, Any]
    """As in metadata.json."""
    progress: Progress
    """How this run went."""


@dataclass(frozen=True)
class _Model:
    name: str
    """By which workers find it."""
    codec: DTMCodec
    """On the cpu: the device may be that of another machine."""
    tau: float | None

    @property
    def model_id(self) -> str:
        return self.codec.model_id

    @property
    def backend(self) -> BackendName:
        return cast(BackendName, self.codec.backend.name)

    @property
    def config(self) -> CodecConfig:
        return self.codec.config


def tokenize(
    corpus: str | PathLike[str],
    out: str | PathLike[str],
    *,
    model: str | PathLike[str] | None = None,
    device: str = "cpu",
    backend: BackendName | None = None,
    bitrate: float | None = None,
    token_rate: float | None = None,
    tau: float | None = None,
    selector: SelectorName | None = None,
    effort: int = 0,
    workers: int | None = None,
    ray: str | None = None,
    shard_size: int | None = None,
    compare: Compare = "times",
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> TokenizedCorpus:
    """Turn a corpus into Parquet shards of tokens under `out`; what an earlier run with the same settings did stays.

    backend: what computes, 'torch', 'onnx' or 'onnx-int8'; without it, 'onnx' where it can do what is asked, which
    gives the tokens that torch gives.
    corpus: a folder of audio, a JSON-lines manifest, WebDataset tars, or Parquet or Arrow tables with an audio column.
    bitrate, token_rate: total bits, or tokens, a second that each utterance is calibrated to. tau: one tau for all.
    Without any of the three: the model's tau. selector: another rule than the model's own.
    effort: other codes to try for every token (`DTMCodec.encode`).
    workers: processes, default one a core, or one with a GPU; with `ray`, actors at most, default no limit.
    ray: address of a Ray cluster, 'auto' for the one that is running, 'local' to start one here.
    shard_size: utterances in a file; the default follows from their number.
    compare: how a run that goes on sees that the corpus is still the same, by its files' sizes and times or, which
    reads all of them, by their content.
    """
    if compare not in get_args(Compare):
        raise CorpusError(f"compare = {compare!r}; allowed: {', '.join(get_args(Compare))}")
    if workers is not None and workers < 1:
        raise CorpusError(f"workers = {workers}; allowed: >= 1")
    if ray is None:
        from ..backends import check_device

        check_device(device)
    asked = {"bitrate": bitrate, "token_rate": token_rate, "tau": tau, "selector": selector, "effort": effort}
    identity = _identify(model, device, backend, asked)
    asked = {key: value.item() if isinstance(value, np.generic) else value for key, value in asked.items()}  # for JSON
    folder = Path(out).resolve()
    if folder == Path(corpus).resolve():
        raise CorpusError(f"{out} is the corpus; allowed: another folder for the tokens, which may be inside it")
    with folder_in_use(folder):
        source, plan = _settle(Path(corpus).resolve(), folder, compare, identity, asked, shard_size)
        return _run(source, plan, folder, identity, asked, device, workers, ray, on_progress)


def _settle(
    corpus: Path, folder: Path, compare: Compare, identity: _Model, asked: dict[str, Any], shard_size: int | None
) -> tuple[Source, ShardPlan]:
    listing = folder / f".{LISTING_FILE}"
    try:
        source = open_source(corpus, listing, compare)
        plan = ShardPlan.settle(folder, source, identity.model_id, identity.backend, asked, shard_size)
        if isinstance(source, Manifest) and source.path == listing:  # only now: a refused run changes nothing
            source = replace(source, path=listing.replace(folder / LISTING_FILE))
        return source, plan
    finally:
        listing.unlink(missing_ok=True)


def _run(
    source: Source,
    plan: ShardPlan,
    folder: Path,
    identity: _Model,
    asked: dict[str, Any],
    device: str,
    workers: int | None,
    ray: str | None,
    on_progress: Callable[[Progress], None],
) -> TokenizedCorpus:
    data = folder / DATA_FOLDER
    data.mkdir(exist_ok=True)
    shards = list(plan.shards(data))
    missing = [shard for shard in shards if not shard.path.exists()]
    cores = available_cores()
    processes = min(workers or (cores if device == "cpu" else 1), max(1, len(missing)))
    job = TokenizeJob(source, identity.name, identity.model_id, device, identity.backend, asked)
    results: Generator[FinishedShard, None, None]
    if ray:
        results = ray_engine.run(job, missing, ray, workers)
    elif processes == 1:  # a second process would have to load all of it again
        results = _run_here(job, identity.codec if device == "cpu" else None, missing)
    else:
        results = run_in_processes(partial(ShardWorker, job), missing, processes, max(1, cores // processes))
    started, done, report, core_seconds = time.perf_counter(), len(shards) - len(missing), ShardReport(), 0.0

    def progress() -> Progress:
        speech_s, wall_s = report.num_samples / identity.config.sample_rate, time.perf_counter() - started
        return Progress(len(shards), done, report, speech_s / 3600, wall_s / 3600, core_seconds / 3600)

    on_progress(progress())
    with closing(results):
        for result in results if missing else ():
            done, report, core_seconds = done + 1, report + result.report, core_seconds + result.core_seconds
            on_progress(progress())
    finished = progress()
    remove_leftovers(data)  # of workers that were killed in this run
    metadata = _metadata(shards, plan, identity)
    write_atomically(folder / METADATA_FILE, (json.dumps(metadata, indent=1, ensure_ascii=False) + "\n").encode())
    return TokenizedCorpus(folder, metadata, finished)


def _run_here(job: TokenizeJob, codec: DTMCodec | None, shards: list[Shard]) -> Generator[FinishedShard, None, None]:
    yield from map(ShardWorker(job, codec), shards)


def _identify(
    model: str | PathLike[str] | None, device: str, backend: BackendName | None, asked: dict[str, Any]
) -> _Model:
    """Load the model, and check on a second of noise that it can do what is asked, before any work begins."""
    from ..backends import quickest
    from ..codec import DTMCodec
    from ..models.hub import DEFAULT_MODEL, bundled_models, load

    chosen = DEFAULT_MODEL if model is None else model
    loaded = load(chosen)
    quick = quickest(loaded, device, in_torch=bool(asked["effort"]), torchs_tokens=True)
    codec = DTMCodec.from_loaded(loaded, backend=backend or quick)
    rate = codec.config.sample_rate
    noise = np.random.default_rng(0).standard_normal(rate, np.float32) / 100
    codec.encode(noise, rate, **asked)
    used_tau = asked["tau"]
    is_open = asked["bitrate"] is None and asked["token_rate"] is None and used_tau is None
    if is_open and asked["selector"] in (None, codec.config.selector.name) and not math.isnan(codec.backend.tau):
        used_tau = codec.backend.tau  # otherwise each utterance is calibrated on its own
    name = str(chosen)
    if not isinstance(chosen, str) or (name not in bundled_models() and Path(name).is_dir()):
        name = str(Path(chosen).resolve())  # workers may run elsewhere
    return _Model(name, codec, used_tau)


def _metadata(shards: list[Shard], plan: ShardPlan, model: _Model) -> dict[str, Any]:
    """Counts and rates of the whole corpus, from the reports in its shards."""
    report = ShardReport()
    for shard in shards:
        report += read_footer(shard.path)[1]
    config = model.config
    seconds = report.num_samples / config.sample_rate

    def per_second(amount: int) -> float | None:
        return amount / seconds if seconds else None

    return {
        "model": model.name,
        "model_id": model.model_id,
        "sample_rate": config.sample_rate,
        "hop_length": config.hop_length,
        "frame_rate": config.frame_rate,
        "codebook_size": config.quantizer.codebook_size,
        "bitrate": plan.bitrate,
        "token_rate": plan.token_rate,
        "tau": model.tau,
        "selector": plan.selector or config.selector.name,
        "effort": plan.effort,
        "backend": plan.backend,
        "rates": {
            "token_rate": per_second(report.tokens),
            "content_bps": per_second(report.content_bits),
            "position_bps": per_second(report.position_bits),
            "total_bps": per_second(report.content_bits + report.position_bits),
            "keep_ratio": report.tokens / report.steps if report.steps else None,
        },
        "counts": {
            "shards": len(shards),
            "utterances": report.utterances,
            "failures": len(report.failures),
            "tokens": report.tokens,
            "hours": seconds / 3600,
        },
        "corpus_fingerprint": plan.corpus,
        "failures": [asdict(failure) for failure in report.failures],
    }
