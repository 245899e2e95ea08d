"""The pool of processes: it does every task, says why it cannot, and leaves nobody behind."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import pytest
import torch

from dtm_codec.errors import ConfigError
from dtm_codec.system.workers import WorkerError, run_in_processes


class Square:
    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def __call__(self, task: int) -> tuple[int, int, int, str]:
        return task * task + self.offset, os.getpid(), torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def refuse() -> Square:
    raise ConfigError("colour = 'red'; allowed: 'blue'")


class Sleep:
    def __call__(self, seconds: float) -> int:
        time.sleep(seconds)
        return os.getpid()


class Fail:
    def __call__(self, task: int) -> int:
        if task == 3:
            raise ConfigError("three is not allowed")
        return task


class Die:
    def __call__(self, task: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return task


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_task_is_done_once_with_the_threads_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    results = list(run_in_processes(partial(Square, 1), range(9), 2, threads=2))
    assert sorted(r[0] for r in results) == [n * n + 1 for n in range(9)]
    assert os.getpid() not in {r[1] for r in results}
    assert {r[2:] for r in results} == {(2, "2")}


def test_a_user_may_ask_for_fewer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert {r[2:] for r in run_in_processes(partial(Square, 1), range(2), 1, threads=2)} == {(1, "1")}


def test_what_cannot_be_set_up_is_the_error_of_its_cause() -> None:
    with pytest.raises(ConfigError, match="colour = 'red'"):
        list(run_in_processes(refuse, range(3), 2))


def test_a_task_that_fails_stops_the_run_with_its_error() -> None:
    with pytest.raises(ConfigError, match="three"):
        list(run_in_processes(Fail, range(100), 1))


def test_a_worker_that_dies_is_named() -> None:
    with pytest.raises(WorkerError, match="a worker process died"):
        list(run_in_processes(Die, range(3), 1))


def test_closing_the_run_ends_workers_in_the_middle_of_a_task() -> None:
    results = run_in_processes(Sleep, [0.0, 600.0], 1)
    started = time.monotonic()
    worker = next(results)
    results.close()
    assert time.monotonic() - started < 300
    assert not alive(worker)
