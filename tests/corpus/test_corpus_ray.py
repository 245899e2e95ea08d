"""On Ray the same files come out, and a lost worker is replaced."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from corpus_helpers import children, files

from dtm_codec.corpus import CorpusError, tokenize

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Ray writes into the home folder and asks the network; here it does neither."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def two_workers(home):
    """A Ray of two cores in this machine."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def actors() -> list[int]:
    """Processes of our Ray that hold a model."""
    found = []
    for pid in children(os.getpid()):
        with suppress(OSError):  # a process that has ended meanwhile
            if b"MapWorker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return sorted(found)


@pytest.mark.usefixtures("two_workers")
def test_ray_writes_the_same_bytes_even_if_a_worker_is_killed(clips, whole, tmp_path, tiny_model):
    seen, killed = set(), []

    def kill_one(progress) -> None:
        seen.update(actors())
        if progress.shards_done == 3:
            killed.append(actors()[0])
            os.kill(killed[0], signal.SIGKILL)

    summary = tokenize(
        clips, tmp_path / "out", model=tiny_model, shard_size=2, ray="auto", workers=2, on_progress=kill_one
    )
    assert files(tmp_path / "out") == whole
    assert not list((tmp_path / "out").rglob(".*"))  # no temporary, no lock
    assert summary.progress.report.utterances == 60
    assert summary.progress.hours_per_core_hour > 0
    assert killed
    assert len(seen - set(killed)) >= 1


@pytest.mark.usefixtures("home")
def test_a_cluster_that_is_not_there_is_one_line(clips, tmp_path, tiny_model):
    with pytest.raises(CorpusError, match="no Ray at 'auto'"):
        tokenize(clips, tmp_path / "out", model=tiny_model, ray="auto")
