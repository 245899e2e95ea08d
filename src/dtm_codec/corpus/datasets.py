"""A tokenized corpus for PyTorch: rows by number from memory, or streamed from disk and shared over processes.

loader = DataLoader(TokenDataset("OUT"), batch_size=16, shuffle=True, collate_fn=collate)
loader = DataLoader(TokenStream("OUT", shuffle_buffer=1000), batch_size=16, num_workers=4, collate_fn=collate)
for ids, tokens, texts, speakers in loader:
    tokens.codes, tokens.durations, tokens.is_token  # (B, K_max) each
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import distributed
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from ..batches import TokenBatch
from .errors import CorpusError
from .schema import Row, find_shards, read_footer, read_rows, read_table, table_row


class Batch(NamedTuple):
    ids: list[str]
    tokens: TokenBatch
    texts: list[str | None]
    speakers: list[str | None]


def collate(rows: Sequence[Row]) -> Batch:
    """For `DataLoader(collate_fn=collate)`: rows side by side, padded."""
    ids, encoded, texts, speakers = zip(*rows, strict=True)
    return Batch(list(ids), TokenBatch.from_encoded(encoded), list(texts), list(speakers))


class _Shards:
    """The files of a corpus, all of one model."""

    def __init__(self, source: str | PathLike[str]) -> None:
        self.paths = find_shards(source)
        footers = [read_footer(path) for path in self.paths]
        self.rows = [report.utterances for _, report in footers]
        self.stamp = footers[0][0]
        for path, (stamp, _) in zip(self.paths, footers, strict=True):
            if (stamp.model_id, stamp.layout) != (self.stamp.model_id, self.stamp.layout):
                raise CorpusError(
                    f"{path} was made by model {stamp.model_id!r} with {stamp.layout}, the files before it by "
                    f"{self.stamp.model_id!r} with {self.stamp.layout}; allowed: one model and layout"
                )


class TokenDataset(Dataset[Row]):
    """Rows by number. All are held in memory as they lie in the files, 0.8 MB an hour of speech at 50 tokens a second;
    `TokenStream` is for corpora that do not fit."""

    def __init__(self, source: str | PathLike[str]) -> None:
        """source: what `dtm-codec tokenize` wrote, or a Parquet file of it"""
        self._shards = _Shards(source)
        self._tables: list[Any] = [read_table(path) for path in self._shards.paths]
        self._ends = list(accumulate(self._shards.rows))

    @property
    def model_id(self) -> str:
        return self._shards.stamp.model_id

    @property
    def codebook_size(self) -> int:
        return self._shards.stamp.codebook_size

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Row:
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"row {index}; allowed: {-len(self)} ... {len(self) - 1}")
        shard = bisect_right(self._ends, number)
        return table_row(
            self._tables[shard], number - self._ends[shard] + self._shards.rows[shard], self._shards.stamp.layout
        )


class TokenStream(IterableDataset[Row]):
    """Rows from disk, one after the other, in little memory.

    All processes of a training run and all workers of their loaders share the rows: each gets a stretch of its own, as
    long as the others' to within one row, and reads the files of that stretch alone.
    """

    def __init__(
        self,
        source: str | PathLike[str],
        *,
        shuffle_buffer: int = 0,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        equal_shares: bool = False,
    ) -> None:
        """source: what `dtm-codec tokenize` wrote, or a Parquet file of it

        shuffle_buffer: rows that are held to draw from; files come in a new order too, in each epoch (`set_epoch`).
        0: all in their order. rank, world_size: of this process; by default what torch.distributed says, or else the
        variables of torchrun. equal_shares: leave out up to world_size - 1 rows, so that all processes have as many.
        """
        if shuffle_buffer < 0:
            raise CorpusError(f"shuffle_buffer = {shuffle_buffer}; allowed: >= 0")
        if (rank is None) != (world_size is None):
            raise CorpusError(f"rank = {rank}, world_size = {world_size}; allowed: both or neither")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise CorpusError(f"rank = {rank}; allowed: 0 ... {world_size - 1} with world_size = {world_size}")
        self._shards = _Shards(source)
        self._buffer, self._seed, self._equal = shuffle_buffer, seed, equal_shares
        self._place = None if rank is None or world_size is None else (rank, world_size)
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]  # workers that persist see it change

    @property
    def model_id(self) -> str:
        return self._shards.stamp.model_id

    @property
    def num_rows(self) -> int:
        """Of all processes together."""
        return sum(self._shards.rows)

    def set_epoch(self, epoch: int) -> None:
        """Another order of files and rows; the same for the same number."""
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Row]:
        rank, world_size = self._place or _place()
        worker = get_worker_info()
        worker_id, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        count = self.num_rows - (self.num_rows % world_size if self._equal else 0)
        start, stop = _share(0, count, rank, world_size)
        start, stop = _share(start, stop, worker_id, workers)
        order = np.arange(len(self._shards.paths))
        if not self._buffer:
            return self._read(order, start, stop)
        epoch = int(self._epoch)
        order = np.random.default_rng((self._seed, epoch)).permutation(order)
        own = np.random.default_rng((self._seed, epoch, rank, worker_id))
        return _shuffled(self._read(order, start, stop), self._buffer, own)

    def _read(self, order: Iterable[int], start: int, stop: int) -> Iterator[Row]:
        """Rows start ... stop - 1 of the files in this order."""
        begin = 0
        for shard in order:
            rows = self._shards.rows[shard]
            first, last = max(start - begin, 0), min(stop - begin, rows)
            if first < last:
                yield from read_rows(self._shards.paths[shard], self._shards.stamp.layout, first=first, last=last)
            begin += rows


def _share(start: int, stop: int, index: int, parts: int) -> tuple[int, int]:
    """The index-th of equal parts of a stretch."""
    length = stop - start
    return start + length * index // parts, start + length * (index + 1) // parts


def _place() -> tuple[int, int]:
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def _shuffled(rows: Iterator[Row], size: int, random: np.random.Generator) -> Iterator[Row]:
    held: list[Row] = []
    for row in rows:
        if len(held) < size:
            held.append(row)
            continue
        place = int(random.integers(size))
        held[place], row = row, held[place]
        yield row
    yield from (held[place] for place in random.permutation(len(held)))
