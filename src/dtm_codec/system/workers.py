"""A pool of spawned processes for work that fills the cores. Workers end with their parent, even one that is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from ..errors import DTMCodecError
from .threads import asked_threads, let_threads_sleep

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_work: Callable[[Any], Any]
"""What this process does with a task, when it is a worker."""


class WorkerError(DTMCodecError):
    """A worker process died."""


def run_in_processes(
    start: Callable[[], Callable[[Task], Answer]], tasks: Iterable[Task], processes: int, threads: int = 1
) -> Generator[Answer, None, None]:
    """Do the tasks in any order, `processes` at a time with `threads` threads each; `OMP_NUM_THREADS` may
    allow fewer.

    start: called once in every worker, gives what is called with each task. Closing the generator stops all workers at
    once. Processes are spawned, not forked, since the threads of torch and onnxruntime do not survive a fork.
    """
    context = multiprocessing.get_context("spawn")
    watched, held = context.Pipe(duplex=False)  # closes with this process, even one that is killed
    with held, ProcessPoolExecutor(processes, context, _become_worker, (start, threads, watched)) as pool:
        try:
            for future in as_completed([pool.submit(_do, task) for task in tasks]):
                yield future.result()
        except BrokenProcessPool:
            raise WorkerError(
                "a worker process died: for lack of memory (run again to go on), or because a script calls this "
                "outside of `if __name__ == '__main__':`"
            ) from None
        except BaseException:
            held.close()  # the workers end now, and not when their tasks are done
            raise


def _become_worker(start: Callable[[], Callable[[Any], Any]], threads: int, watched: Connection) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
    limit_threads(threads)
    try:
        _work = start()
    except DTMCodecError as error:  # a pool would only say that its worker broke
        _work = _Refusal(error)


def limit_threads(threads: int) -> None:
    """Let this process compute with so many threads, or with what `OMP_NUM_THREADS` says if that is less."""
    threads = min(threads, asked_threads() or threads)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(threads)  # read when torch, numba and onnxruntime are loaded
    let_threads_sleep()
    torch = sys.modules.get("torch")
    if torch is not None:  # then it has read the variables already
        torch.set_num_threads(threads)


class _Refusal:
    """Stands in for work that could not be set up: every task gets the reason."""

    def __init__(self, error: DTMCodecError) -> None:
        self.error = error

    def __call__(self, task: Any) -> Any:
        raise self.error


def _end_with_parent(watched: Connection) -> None:
    watched.poll(None)
    os._exit(1)


def _do(task: Any) -> Any:
    return _work(task)
