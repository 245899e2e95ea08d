"""The work itself, the same on every engine: one part of a corpus becomes one Parquet file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..encoded import Encoded
from ..errors import AudioError, DTMCodecError, ModelError
from ..files import atomic_path
from ..speech.audio import audio_info, read_audio
from .errors import CorpusError
from .items import Item, Part, Source, plain_text
from .plan import Shard
from .schema import Failure, Report, ShardWriter, Stamp, read_footer

BATCH_SECONDS = 60.0
"""Audio encoded at a time, packed end to end: enough to fill the matrix products, little enough to stay in caches."""

LOST_SECONDS = 0.1
"""Audio may be this much shorter than its header says: lossy formats count in whole frames."""


@dataclass(frozen=True)
class Job:
    """What a worker must know; plain data, so that it can be sent to another process or machine."""

    source: Source
    model: str
    model_id: str
    device: str
    asked: dict[str, Any]
    """Rate and selector, as `DTMCodec.encode` takes them."""
    threads: int


@dataclass(frozen=True)
class Result:
    """A finished shard."""

    report: Report
    core_seconds: float
    """Processor time of all threads: what other programs take from the cores does not count."""


@dataclass(frozen=True)
class _Utterance:
    item: Item
    audio: npt.NDArray[np.float32]


class ShardWorker:
    """A loaded model that turns shards into files."""

    def __init__(self, job: Job) -> None:
        import torch

        from ..codec import DTMCodec

        torch.set_num_threads(job.threads)
        self.job = job
        self.codec = DTMCodec.from_pretrained(job.model, job.device)
        if self.codec.model_id != job.model_id:
            raise ModelError(f"{job.model} is {self.codec.model_id!r} here; the run was begun with {job.model_id!r}")
        config = self.codec.config
        self.stamp = Stamp(job.model, job.model_id, config.quantizer.codebook_size, self.codec.layout)
        self.min_samples = config.n_fft
        """One STFT window: less is mostly padding, and shorter than any sound of speech (40 ms at 100 Hz)."""

    def __call__(self, shard: Shard) -> Result:
        """Write the shard's file, unless an earlier attempt has."""
        started = time.process_time()
        report = read_footer(shard.path)[1] if shard.path.exists() else self._write(shard)
        return Result(report, time.process_time() - started)

    def _write(self, shard: Shard) -> Report:
        failures: list[Failure] = []
        with atomic_path(shard.path) as temporary, ShardWriter(temporary, self.stamp) as writer:
            for batch in self._batches(shard.part, failures):
                for utterance, encoded in self._encode(batch, failures):
                    try:
                        writer.add(utterance.item, encoded)
                    except DTMCodecError as error:
                        failures.append(_failure(utterance.item, error))
            return writer.finish(failures)

    def _batches(self, part: Part, failures: list[Failure]) -> Iterator[list[_Utterance]]:
        """Neighbours together, up to `BATCH_SECONDS`."""
        limit = BATCH_SECONDS * self.codec.config.sample_rate
        batch: list[_Utterance] = []
        ids: set[str] = set()
        for item in self.job.source.read(part):
            try:
                if item.id in ids:  # manifests and tables are checked as a whole before; a tar can only be now
                    raise CorpusError("its id stands here a second time; ids must differ")
                ids.add(item.id)
                utterance = _Utterance(item, self._load(item))
            except (DTMCodecError, OSError) as error:
                failures.append(_failure(item, error))
                continue
            if batch and sum(u.audio.size for u in batch) + utterance.audio.size > limit:
                yield batch
                batch = []
            batch.append(utterance)
        if batch:
            yield batch

    def _load(self, item: Item) -> npt.NDArray[np.float32]:
        """The samples of an item at the model's rate, (T,)."""
        if item.audio is None:
            raise AudioError(item.problem or "it has no audio")
        info = audio_info(item.audio)
        offset = round(item.offset_s * info.sample_rate)
        frames = None if item.duration_s is None else max(1, round(item.duration_s * info.sample_rate))
        audio, rate = read_audio(item.audio, self.codec.config.sample_rate, offset=offset, frames=frames)
        promised_s = min(info.num_samples - offset, frames or info.num_samples) / info.sample_rate
        if audio.size / rate < promised_s - LOST_SECONDS:
            raise AudioError(f"it breaks off: {audio.size / rate:.2f} s of {promised_s:.2f} s can be decoded")
        if audio.size < self.min_samples:
            raise AudioError(f"too short: {audio.size} samples at {rate} Hz; allowed: {self.min_samples} or more")
        return audio

    def _encode(self, batch: list[_Utterance], failures: list[Failure]) -> Iterator[tuple[_Utterance, Encoded]]:
        """Encode a batch; if the codec refuses it, one at a time, so that only the culprit fails."""
        audio, rate = [utterance.audio for utterance in batch], self.codec.config.sample_rate
        try:
            encoded = self.codec.encode(audio, rate, **self.job.asked)
        except DTMCodecError as error:
            if len(batch) == 1:
                failures.append(_failure(batch[0].item, error))
                return
            for utterance in batch:
                yield from self._encode([utterance], failures)
        else:
            yield from zip(batch, encoded, strict=True)


def _failure(item: Item, error: Exception) -> Failure:
    return Failure(item.id, plain_text(str(error)))
