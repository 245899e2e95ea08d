"""Shards on a cluster: Ray Data spreads them over a pool of actors that grows and shrinks with the cluster.

A row is a shard, and its file the result, so what Ray retries after a lost worker or node is not done twice: a file
that is there counts. Corpus, model and output must be on file systems that all nodes share.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from ..system.optional import import_optional
from ..system.workers import limit_threads
from .errors import CorpusError
from .plan import Shard
from .worker import FinishedShard, ShardWorker, TokenizeJob


class RayWorker(ShardWorker):
    """The worker as Ray Data calls it: rows of pickled shards in, rows of pickled results out. It has one core."""

    def __init__(self, job: TokenizeJob) -> None:
        limit_threads(1)
        super().__init__(job)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        results = [super(RayWorker, self).__call__(pickle.loads(shard)) for shard in batch["shard"]]
        return {"result": np.array([pickle.dumps(result) for result in results], dtype=object)}


def run(
    job: TokenizeJob, shards: Sequence[Shard], address: str, workers: int | None
) -> Generator[FinishedShard, None, None]:
    """Do the shards in any order, on up to `workers` actors (None: as many as the cluster has room for)."""
    ray = import_optional("ray", "cluster")
    import_optional("ray.data", "cluster")
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray.data.DataContext.get_current().enable_progress_bars = False
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, ValueError) as error:
            raise CorpusError(f"no Ray at {address!r}; allowed: 'auto', 'local' or host:port ({error})") from error
    try:
        rows = [{"shard": pickle.dumps(shard)} for shard in shards]
        results = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            RayWorker,
            fn_constructor_args=(job,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
            num_cpus=1,
            num_gpus=1 if job.device.startswith("cuda") else None,
        )
        for row in results.iter_rows():
            yield pickle.loads(row["result"])
    finally:
        if ours:
            ray.shutdown()
