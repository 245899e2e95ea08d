"""Worker processes: the same files as one process would write, whatever is killed on the way."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus_helpers import alive, children, files, state_of

from dtm_codec.corpus import CorpusError, run, tokenize
from dtm_codec.system.locks import FolderInUseError, folder_in_use
from dtm_codec.system.workers import WorkerError


def command(clips: Path, out: Path, model: Path) -> list[str]:
    words = f"{sys.executable} -m dtm_codec tokenize {clips} -o {out} -m {model} --shard-size 2 --workers 2"
    return words.split()


STOPS = """
import os, signal, sys
from pathlib import Path
from dtm_codec.corpus import tokenize

def stop(progress):
    if progress.shards_done >= int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGSTOP)

if __name__ == "__main__":
    clips, out, model = map(Path, sys.argv[1:4])
    tokenize(clips, out, model=model, shard_size=2, workers=2, on_progress=stop)
"""
"""The same run, but it hands out no more work once so many shards are there, and waits to be killed."""


def wait_until(condition, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_processes_write_the_same_bytes_as_one(clips, whole, tmp_path, tiny_model):
    """And killing the run at any moment, again and again, changes nothing but the time it takes."""
    out, rolls = tmp_path / "out", random.Random(7)
    done = 0
    script = tmp_path / "stops.py"
    script.write_text(STOPS)
    for _ in range(2):
        target = done + rolls.randrange(1, 5)
        with subprocess.Popen([sys.executable, *map(str, (script, clips, out, tiny_model, target))]) as run:
            wait_until(lambda run=run: state_of(run.pid) == "T")
            time.sleep(rolls.random() / 20)  # workers go on with what they have
            workers = children(run.pid)
            run.kill()
        assert len(workers) >= 2
        wait_until(lambda workers=workers: not alive(workers))  # nobody is left behind
        assert not (out / "metadata.json").exists()
        done = len(list(out.glob("data/[!.]*")))
    assert 0 < done < 30
    finished = subprocess.run(command(clips, out, tiny_model), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert "60 utterances" in finished.stdout
    assert "hours per hour" in finished.stdout
    assert files(out) == whole
    assert not list(out.rglob(".*"))  # no temporary, no lock


def test_a_worker_that_dies_stops_the_run_and_a_rerun_goes_on(clips, whole, tmp_path, tiny_model):
    out, killed = tmp_path / "out", []

    def kill_one(progress) -> None:
        if progress.shards_done >= 2 and not killed:
            killed.append(max(children(os.getpid())))
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(WorkerError, match="a worker process died"):
        tokenize(clips, out, model=tiny_model, shard_size=2, workers=2, on_progress=kill_one)
    assert len(list(out.glob("data/[!.]*"))) >= 2
    tokenize(clips, out, model=tiny_model, shard_size=2, workers=2)
    assert files(out) == whole
    assert not alive(children(os.getpid()) - resource_trackers())


def test_an_interrupted_run_leaves_no_worker(clips, tmp_path, tiny_model):
    def interrupt(progress) -> None:
        if progress.shards_done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenize(clips, tmp_path / "out", model=tiny_model, shard_size=2, workers=2, on_progress=interrupt)
    assert not alive(children(os.getpid()) - resource_trackers())
    assert not (tmp_path / "out" / "metadata.json").exists()


def resource_trackers() -> set[int]:
    """Helpers of multiprocessing that live as long as this process."""
    return {pid for pid in children(os.getpid()) if b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def test_a_folder_is_written_by_one_run_at_a_time(clips, tmp_path, tiny_model):
    with folder_in_use(tmp_path), pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()} "):
        tokenize(clips, tmp_path, model=tiny_model)
    assert list(tmp_path.iterdir()) == []


def test_cores_are_shared_out(clips, tmp_path, tiny_model, monkeypatch):
    """Two workers on six cores have three threads each."""
    jobs = []

    def record(start, shards, processes, threads):
        jobs.append((threads, processes))
        raise CorpusError("enough")

    monkeypatch.setattr(run, "run_in_processes", record)
    monkeypatch.setattr(run, "available_cores", lambda: 6)
    for workers in (2, None, 4, 100):
        with pytest.raises(CorpusError, match="enough"):
            tokenize(clips, tmp_path / "out", model=tiny_model, shard_size=2, workers=workers)
    assert jobs == [(3, 2), (1, 6), (1, 4), (1, 30)]
