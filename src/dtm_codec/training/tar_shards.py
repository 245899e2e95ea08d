"""Crops from WebDataset tar shards, for corpora that live on a cluster's storage.

Each process streams its own share of the shards, in an order drawn with replacement from (seed, step), so the position
in the data cannot be set exactly: after a resume, loss curves agree in distribution, not in every bit.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from ..errors import AudioError, DataError
from ..speech.audio import Samples
from ..speech.tars import read_tar
from ..speech.utterance import Failure, Utterance
from ..system.optional import import_optional
from .config import DataConfig
from .crops import draw_crop
from .data import MAX_UNREADABLE, REPORTED, Batch, collate, leave_signals, read_ahead

log = logging.getLogger(__name__)

SHUFFLE_BUFFER = 1_000
"""Crops that wait in each worker to be drawn, so that neighbours in a shard do not share a batch."""


def shard_batches(
    source: str, config: DataConfig, sample_rate: int, crop_samples: int, seed: tuple[int, int], rank: int, world: int
) -> Generator[Batch, None, None]:
    webdataset = import_optional("webdataset", "train")
    if config.batch_size % world:
        raise DataError(f"data.batch_size = {config.batch_size}; allowed: a multiple of the {world} processes")
    urls = webdataset.shardlists.expand_urls(source)
    for url in urls:
        if "://" not in url and not url.startswith("pipe:") and not Path(url).is_file():
            raise DataError(f"no such shard: {url}")
    if len(urls) < world:
        raise DataError(f"{len(urls)} shards for {world} processes; allowed: at least one each")
    mine = urls[rank::world]
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    crops = partial(_crops, config=config, sample_rate=sample_rate, length=crop_samples, seed=(*seed, rank))
    dataset = webdataset.DataPipeline(
        webdataset.ResampledShards(mine, seed=number, deterministic=True),
        partial(webdataset.tariterators.url_opener, handler=webdataset.warn_and_continue),
        crops,
        webdataset.shuffle(SHUFFLE_BUFFER, initial=min(SHUFFLE_BUFFER, 4 * config.batch_size), rng=Random(number)),
        webdataset.batched(config.batch_size // world, collation_fn=collate, partial=False),
    )
    workers = min(max(1, config.workers), len(mine))
    loader: DataLoader[Batch] = DataLoader(dataset, batch_size=None, num_workers=workers, worker_init_fn=leave_signals)
    return read_ahead(loader)


def _crops(
    shards: Iterable[dict[str, Any]], config: DataConfig, sample_rate: int, length: int, seed: tuple[int, ...]
) -> Iterator[tuple[Samples, str]]:
    """As many random crops of a recording as it is crops long."""
    worker = torch.utils.data.get_worker_info()
    draw = np.random.default_rng((*seed, worker.id if worker is not None else 0))
    skipped = 0
    for item in _items(shards):
        try:
            if isinstance(item, Failure):
                raise AudioError(item.reason)
            audio, _ = item.read(sample_rate)
        except AudioError as error:
            skipped += 1
            if skipped <= REPORTED:
                log.warning("skipped: %s: %s", item.id, error)
            if skipped == MAX_UNREADABLE:
                reason = f"{MAX_UNREADABLE} recordings in a row cannot be read, such as: {item.id}: {error}"
                raise DataError(reason) from None
            continue
        skipped = 0
        for _ in range(max(1, round(audio.size / length))):
            crop, start = draw_crop(partial(_part, audio), audio.size, length, config, draw)
            yield crop, f"{item.id}@{start}"


def _part(audio: Samples, start: int, length: int) -> Samples:
    return audio[start : start + length]


def _items(shards: Iterable[dict[str, Any]]) -> Iterator[Utterance | Failure]:
    for shard in shards:
        try:
            with shard["stream"] as stream:
                yield from read_tar(stream, shard["url"])
        except OSError as error:  # a pipe's command says only at its end that it failed
            yield Failure(shard["url"], str(error))
