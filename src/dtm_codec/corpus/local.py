"""Shards on this machine: a pool of processes, each with its own model and its share of the cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection

from .errors import CorpusError
from .plan import Shard
from .worker import Job, Result, ShardWorker

_worker: ShardWorker
"""Of this process, when it is one of the pool."""


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(job: Job, shards: Sequence[Shard], workers: int) -> Generator[Result, None, None]:
    """Do the shards in any order, `workers` at a time. Workers end with this process, however it ends."""
    context = multiprocessing.get_context("spawn")
    watched, held = context.Pipe(duplex=False)  # closes with this process, even one that is killed
    with held, ProcessPoolExecutor(workers, context, _start, (job, watched)) as pool:
        try:
            for future in as_completed([pool.submit(_tokenize, shard) for shard in shards]):
                yield future.result()
        except BrokenProcessPool as error:
            raise CorpusError(
                "a worker process died: for lack of memory (run again to go on), or because a script calls this "
                "outside of `if __name__ == '__main__':`"
            ) from error
        except BaseException:
            held.close()  # stop at once: unfinished shards are not there, and will be done by the next run
            raise


def _start(job: Job, watched: Connection) -> None:
    """Become a worker: threads for this process's share of the cores, then the model."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(job.threads)  # read when torch and numba are loaded, next
    _worker = ShardWorker(job)


def _end_with(watched: Connection) -> None:
    watched.poll(None)
    os._exit(1)


def _tokenize(shard: Shard) -> Result:
    return _worker(shard)
