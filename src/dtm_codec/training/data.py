"""Random crops of speech, every batch a pure function of (seed, step, rank): a resumed run sees the same data.

A corpus is a folder of audio or a JSON-lines manifest. If its samples fit in memory they are decoded once and held
as 16-bit integers; else each crop is read from its file, from where it starts.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from os import PathLike
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import AudioError, DataError, DTMCodecError
from ..speech.audio import Samples
from ..speech.folders import read_set
from ..speech.pcm import to_pcm
from ..speech.utterance import Utterance
from .config import DataConfig
from .crops import draw_crop

log = logging.getLogger(__name__)

Value = TypeVar("Value")

MAX_UNREADABLE = 100
"""Recordings in a row that may be unreadable; then something is wrong with the corpus as a whole."""
REPORTED = 3
"""Of those, so many are reported one by one."""
READER_DIED = "a process that reads training data died: for lack of memory? Try fewer data.workers"


@dataclass(frozen=True)
class Batch:
    audio: Tensor
    """(B, T) float32"""
    items: list[str]
    """Where each crop is from, as 'utterance@start'."""


def find_utterances(source: str | PathLike[str]) -> list[Utterance]:
    """The recordings of a folder or a manifest, or one alone, each with its duration and without its text, which
    crops do not need. Unreadable ones are reported and skipped."""
    found = read_set(Path(source))
    with ThreadPoolExecutor() as pool:
        measured = pool.map(lambda u: unless_broken(u.seconds), [u for u in found if not u.duration])
        timed = [Utterance(u.id, u.audio, u.offset, u.duration or next(measured)) for u in found]
    utterances = [utterance for utterance in timed if utterance.duration]
    if not utterances:
        raise DataError(f"no readable audio in {source}")
    return utterances


def unless_broken(read: Callable[[], Value]) -> Value | None:
    """What is read, or None if the audio cannot be read, which is reported."""
    try:
        return read()
    except AudioError as error:
        log.warning("skipped: %s", error)
        return None


class InMemory:
    """A corpus decoded once, as one array of 16-bit samples."""

    def __init__(self, utterances: Sequence[Utterance], sample_rate: int) -> None:
        def decode(utterance: Utterance) -> npt.NDArray[np.int16]:
            samples, _ = unless_broken(lambda: utterance.read(sample_rate)) or (np.zeros(0, np.float32), 0)
            return to_pcm(samples)

        with ThreadPoolExecutor() as pool:
            decoded = list(pool.map(decode, utterances))
        readable = [i for i, samples in enumerate(decoded) if samples.size]
        if not readable:
            raise DataError(f"none of {len(utterances)} recordings can be read")
        self.names = [utterances[i].id for i in readable]
        self.lengths = np.array([decoded[i].size for i in readable], np.int64)
        self._offsets = np.cumsum(self.lengths) - self.lengths
        self._samples = np.concatenate([decoded[i] for i in readable])

    def read(self, index: int, start: int, length: int) -> Samples:
        """At most `length` samples from `start` on."""
        begin = self._offsets[index] + start
        end = min(begin + length, self._offsets[index] + self.lengths[index])
        return self._samples[begin:end] * np.float32(1 / 32768)


class OnDisk:
    """A corpus read crop by crop; whole files are never decoded."""

    def __init__(self, utterances: Sequence[Utterance], sample_rate: int) -> None:
        self.names = [utterance.id for utterance in utterances]
        self.lengths = np.array([max(1, int((u.duration or 0) * sample_rate)) for u in utterances], np.int64)
        self._utterances = utterances
        self._sample_rate = sample_rate

    def read(self, index: int, start: int, length: int) -> Samples:
        return self._utterances[index].read(self._sample_rate, start=start, length=length)[0]


Recordings: TypeAlias = InMemory | OnDisk
"""Where crops are cut from: their `names`, and their `lengths` in samples at the model's rate."""


class Crops(Dataset[Batch]):
    """The batches of one process: `crops[step]` is always the same.

    Each epoch is a permutation of slots, one per crop length of every recording, so long recordings come up as
    often as they are long and no part is left out for long; where in its recording a crop starts is drawn anew.
    """

    def __init__(
        self, recordings: Recordings, config: DataConfig, crop_samples: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        if config.batch_size % world:
            raise DataError(f"data.batch_size = {config.batch_size}; allowed: a multiple of the {world} processes")
        self._recordings = recordings
        self._config = config
        self._length = crop_samples
        self._seed = seed
        self._local = range(rank * config.batch_size // world, (rank + 1) * config.batch_size // world)
        slots = np.maximum(1, np.rint(recordings.lengths / crop_samples)).astype(np.int64)
        self._recording_of_slot = np.repeat(np.arange(slots.size), slots)
        self._drawn = (-1, self._recording_of_slot)

    def __getitem__(self, step: int) -> Batch:
        crops = [self._crop(step * self._config.batch_size + i) for i in self._local]
        return collate(crops)

    def _permutation(self, epoch: int) -> npt.NDArray[np.int64]:
        if self._drawn[0] != epoch:
            self._drawn = epoch, np.random.default_rng((self._seed, 0, epoch)).permutation(self._recording_of_slot)
        return self._drawn[1]

    def _crop(self, index: int) -> tuple[Samples, str]:
        """The index-th crop since the start of training, counted over all processes."""
        draw = np.random.default_rng((self._seed, 1, index))
        epoch, position = divmod(index, self._recording_of_slot.size)
        recording = int(self._permutation(epoch)[position])
        for failed in range(MAX_UNREADABLE):
            read = partial(self._recordings.read, recording)
            try:
                audio, start = draw_crop(
                    read, int(self._recordings.lengths[recording]), self._length, self._config, draw
                )
            except AudioError as error:
                reason = str(error)
                if failed < REPORTED:
                    log.warning("skipped: %s", reason)
                recording = int(draw.choice(self._recording_of_slot))
                continue
            return audio, f"{self._recordings.names[recording]}@{start}"
        raise DataError(f"{MAX_UNREADABLE} recordings in a row cannot be read, such as: {reason}")


def collate(crops: Sequence[tuple[Samples, str]]) -> Batch:
    """One batch of crops of equal length, each with where it is from."""
    return Batch(torch.from_numpy(np.stack([audio for audio, _ in crops])), [item for _, item in crops])


def is_shards(source: str) -> bool:
    """Whether a data source is WebDataset tar shards rather than a folder or manifest."""
    return source.endswith(".tar") or source.startswith("pipe:")


def open_recordings(source: str, config: DataConfig, sample_rate: int) -> Recordings:
    """The corpus at `source`, in memory if it fits."""
    utterances = find_utterances(source)
    gigabytes = sum(utterance.duration or 0 for utterance in utterances) * sample_rate * 2 / 1e9
    if gigabytes <= config.ram_gigabytes:
        return InMemory(utterances, sample_rate)
    return OnDisk(utterances, sample_rate)


def batches(
    source: str, config: DataConfig, *, sample_rate: int, crop_samples: int, seed: int, step: int, rank: int, world: int
) -> Generator[Batch, None, None]:
    """Endless batches of one process from `step` on. Closing the generator ends the processes that read ahead."""
    if is_shards(source):
        from .tar_shards import shard_batches

        return shard_batches(source, config, sample_rate, crop_samples, (seed, step), rank, world)
    recordings = open_recordings(source, config, sample_rate)
    crops = Crops(recordings, config, crop_samples, seed, rank, world)
    workers = 0 if isinstance(recordings, InMemory) else config.workers
    loader: DataLoader[Batch] = DataLoader(
        crops, batch_size=None, sampler=count(step), num_workers=workers, worker_init_fn=leave_signals
    )
    return read_ahead(loader)


def read_ahead(loader: DataLoader[Batch]) -> Generator[Batch, None, None]:
    """The batches of a loader, until the generator is closed or fails. Then its processes are killed: they do not heed
    any other signal, and this process would wait for them when it ends."""
    before = multiprocessing.active_children()
    stream = iter(loader)
    readers = [child for child in multiprocessing.active_children() if child not in before]
    try:
        yield from stream
    except DTMCodecError as error:  # the loader puts the reader's traceback around its message
        last = str(error).strip().splitlines()[-1]
        raise type(error)(last.partition(f"{type(error).__name__}: ")[2] or last) from None
    except (RuntimeError, OSError, EOFError):
        try:
            died = _one_died(readers)
        except RuntimeError:  # when a reader ends, the loader's signal handler raises it wherever this process is
            died = True
        if died:
            raise DataError(READER_DIED) from None
        raise
    finally:
        for reader in readers:
            reader.kill()
            reader.join()


def _one_died(processes: Sequence[BaseProcess]) -> bool:
    """One that was killed takes a moment to end."""
    ended = wait([process.sentinel for process in processes], timeout=2)
    for process in processes:
        if process.sentinel in ended:
            process.join()
    return bool(ended)


def leave_signals(worker: int) -> None:
    """Signals to end are the main process's business: it ends its workers itself, after a checkpoint."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.SIG_IGN)
