"""As many threads as cores are free, unless the user says how many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dtm_codec.backends.onnx.backend import OnnxBackend
from dtm_codec.cli import options
from dtm_codec.speech.audio import sample_path
from dtm_codec.system import threads
from dtm_codec.system.threads import Load


@pytest.mark.parametrize(
    ("busy_seconds", "own_seconds", "expected"), [(10, 10, 4), (20, 10, 3), (16, 0, 2), (45, 5, 1), (400, 0, 1)]
)
def test_threads_are_as_many_as_others_leave_free(
    monkeypatch: pytest.MonkeyPatch, busy_seconds: float, own_seconds: float, expected: int
) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 4)
    monkeypatch.setattr(Load, "now", classmethod(lambda cls: cls(110.0, 50.0 + busy_seconds, 7.0 + own_seconds)))
    monkeypatch.setattr(threads, "_began", Load(100.0, 50.0, 7.0))
    assert threads.free_cores() == expected


COMMAND_BESIDE_TWO_BUSY_CORES = """
import sys, time, types
from dtm_codec.system import threads

# by processor time alone, so that it does not matter how busy this machine is
threads.time = types.SimpleNamespace(perf_counter=time.process_time, process_time=time.process_time)
threads.available_cores = lambda: 4
threads._busy_seconds = lambda: 3 * time.process_time()
free_cores = threads.free_cores
threads.free_cores = lambda: print("free", found := free_cores()) or found

from dtm_codec.cli import main
main(sys.argv[1:])
"""


def test_commands_that_start_fast_see_the_load_too(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    for words in (["encode", str(sample_path()), "-o", "x.dtm"], ["decode", "x.dtm"]):
        command = [sys.executable, "-c", COMMAND_BESIDE_TWO_BUSY_CORES, *words]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert result.stdout == "free 2\n"


@pytest.mark.parametrize(
    ("text", "asked"), [("3", 3), ("4,2", 4), ("0", None), ("", None), ("many", None), ("-1", None), ("\u00b2", None)]
)
def test_what_can_be_no_number_of_threads_is_not_asked_for(
    text: str, asked: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert threads.asked_threads() == asked


def test_a_users_number_of_threads_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(torch, "set_num_threads", lambda number: pytest.fail(f"{number} threads"))
    options.load_codec(None, backend="torch")
    backend = options.load_codec(None, backend="onnx").backend
    assert isinstance(backend, OnnxBackend)
    assert backend.threads == 3


def test_work_at_low_priority_and_other_cores_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = "cpu 9 9 9 9 9 9 9 9 0 0\ncpu0 100 70000 20 5000 600 7 8 9 0 0\ncpu7 900 0 0 0 0 0 0 0 0 0\nintr 1\n"
    (tmp_path / "stat").write_text(statistics)
    monkeypatch.setattr(threads, "_STATISTICS", tmp_path / "stat")
    monkeypatch.setattr(threads, "_CLOCK", 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert threads._busy_seconds() == pytest.approx((100 + 20 + 7 + 8 + 9) / 100)
    monkeypatch.setattr(threads, "_STATISTICS", tmp_path / "missing")
    assert threads._busy_seconds() == 0.0
