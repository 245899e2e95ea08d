"""The work itself, the same on every engine: one part of a corpus becomes one Parquet file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..coding.grouping import grouped
from ..config import BackendName
from ..encoded import Encoded
from ..errors import AudioError, DTMCodecError, ModelError
from ..speech.audio import Samples
from ..speech.utterance import Failure, Utterance, plain_text
from ..system.files import atomic_path
from ..system.memory import memory_errors
from .errors import CorpusError
from .parts import Part, Source
from .plan import Shard
from .schema import ShardReport, ShardWriter, Stamp, read_footer

if TYPE_CHECKING:
    from ..codec import DTMCodec

BATCH_SECONDS = 30.0
"""Audio encoded at a time, packed end to end: enough to fill the matrix products, little enough to stay in caches."""


@dataclass(frozen=True)
class TokenizeJob:
    """What a worker must know. Plain data, so that it can be sent to another process or machine."""

    source: Source
    model: str
    model_id: str
    device: str
    backend: BackendName
    asked: dict[str, Any]
    """Rate, selector and effort, as `DTMCodec.encode` takes them."""


@dataclass(frozen=True)
class FinishedShard:
    report: ShardReport
    core_seconds: float
    """Processor time of all threads: what other programs take from the cores does not count."""


class _Loaded(NamedTuple):
    utterance: Utterance
    audio: Samples


class ShardWorker:
    def __init__(self, job: TokenizeJob, codec: DTMCodec | None = None) -> None:
        """codec: the job's, if it is loaded already"""
        from ..codec import DTMCodec

        self.job = job
        self.codec = DTMCodec.from_pretrained(job.model, job.device, job.backend) if codec is None else codec
        if self.codec.model_id != job.model_id:
            raise ModelError(f"{job.model} is {self.codec.model_id!r} here; the run was begun with {job.model_id!r}")
        config = self.codec.config
        noise = np.random.default_rng(0).standard_normal(config.n_fft, np.float32) / 100
        layout = self.codec.encode(noise, config.sample_rate, **(job.asked | {"effort": 0})).layout
        self.stamp = Stamp(job.model, job.model_id, config.quantizer.codebook_size, layout)
        self.min_samples = config.n_fft
        """One STFT window: less is mostly padding, and shorter than any sound of speech (40 ms at 100 Hz)."""

    def __call__(self, shard: Shard) -> FinishedShard:
        """Write the shard's file, unless it is there already."""
        started = time.process_time()
        report = read_footer(shard.path)[1] if shard.path.exists() else self._write(shard)
        return FinishedShard(report, time.process_time() - started)

    def _write(self, shard: Shard) -> ShardReport:
        failures: list[Failure] = []
        with atomic_path(shard.path) as temporary, ShardWriter(temporary, self.stamp) as writer:
            limit = BATCH_SECONDS * self.codec.config.sample_rate
            for batch in grouped(self._utterances(shard.part, failures), lambda u: u.audio.size, limit):
                for utterance, encoded in self._encode(batch, failures):
                    try:
                        writer.add(utterance, encoded)
                    except DTMCodecError as error:
                        failures.append(_failure(utterance, error))
            return writer.finish(failures)

    def _utterances(self, part: Part, failures: list[Failure]) -> Iterator[_Loaded]:
        ids: set[str] = set()
        for item in self.job.source.read(part):
            try:
                if item.id in ids:  # manifests and tables are checked as a whole before; a tar can only be now
                    raise CorpusError("its id stands here a second time; ids must differ")
                ids.add(item.id)
                if isinstance(item, Failure):
                    raise CorpusError(item.reason)
                with memory_errors():
                    loaded = _Loaded(item, self._load(item))
            except (DTMCodecError, OSError) as error:
                failures.append(_failure(item, error))
            else:
                yield loaded

    def _load(self, utterance: Utterance) -> Samples:
        """Its samples at the model's rate, (T,)."""
        audio, rate = utterance.read_whole(self.codec.config.sample_rate)
        if audio.size < self.min_samples:
            raise AudioError(f"too short: {audio.size} samples at {rate} Hz; allowed: {self.min_samples} or more")
        return audio

    def _encode(self, batch: list[_Loaded], failures: list[Failure]) -> Iterator[tuple[Utterance, Encoded]]:
        """Encode a batch; if the codec refuses it, one at a time, so that only the culprit fails."""
        audio, rate = [loaded.audio for loaded in batch], self.codec.config.sample_rate
        try:
            with memory_errors():
                encoded = self.codec.encode(audio, rate, **self.job.asked)
        except DTMCodecError as error:
            if len(batch) == 1:
                failures.append(_failure(batch[0].utterance, error))
                return
            for loaded in batch:
                yield from self._encode([loaded], failures)
        else:
            yield from zip((loaded.utterance for loaded in batch), encoded, strict=True)


def _failure(item: Utterance | Failure, error: Exception) -> Failure:
    return Failure(item.id, plain_text(str(error)))
