"""A checkpoint is whole or not there; a full disk loses nothing."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dtm_codec.training import checkpoints
from dtm_codec.training.checkpoints import CheckpointError

STATE = {"step": 1, "config": {"seed": 0}, "codec": {"weight": torch.arange(3.0)}}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_two_and_milestones_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40, 50, 60, 70):
        checkpoints.save(tmp_path, step, STATE, keep_every=30)
    assert names(tmp_path) == [f"step-{step:08d}.ckpt" for step in (30, 60, 70)]
    last = checkpoints.latest(tmp_path)
    assert last is not None
    assert checkpoints.step_of(last) == 70
    assert torch.equal(checkpoints.load(last)["codec"]["weight"], STATE["codec"]["weight"])  # type: ignore[index]


def test_steps_are_compared_as_numbers(tmp_path: Path) -> None:
    for step in (99_999_999, 100_000_000):
        checkpoints.save(tmp_path, step, STATE, keep_every=1)
    last = checkpoints.latest(tmp_path)
    assert last is not None
    assert checkpoints.step_of(last) == 100_000_000


def test_no_run_has_no_latest(tmp_path: Path) -> None:
    assert checkpoints.latest(tmp_path) is None
    (tmp_path / "step-12.ckpt.tmp").touch()
    (tmp_path / ".step-00000012-x.ckpt").touch()
    assert checkpoints.latest(tmp_path) is None


def test_full_disk_says_so_and_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(tmp_path, 10, STATE, keep_every=100)

    def full(_: Any, file: Any) -> None:
        file.write(b"half a checkpoint")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match=r"No space left on device.*step-00000010\.ckpt"):
        checkpoints.save(tmp_path, 20, STATE, keep_every=100)
    assert names(tmp_path) == ["step-00000010.ckpt"]


LIMITED = """
import resource, signal, sys, torch
from dtm_codec.training import checkpoints
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
state = {"step": 20, "config": {}, "codec": {"weight": torch.zeros(1_000_000)}}
try:
    checkpoints.save(sys.argv[1], 20, state, keep_every=100)
except checkpoints.CheckpointError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs file size limits")
def test_a_write_that_really_fails(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 10, STATE, keep_every=100)
    run = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert "cannot write" in done.stdout
    assert "the last good checkpoint is" in done.stdout
    assert names(tmp_path) == ["step-00000010.ckpt"]


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, 1, STATE, keep_every=1)
    whole = path.read_bytes()
    for damaged in (b"", b"text", whole[:100], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="no readable checkpoint"):
            checkpoints.load(path)
    torch.save({"weights": 1}, path)
    with pytest.raises(CheckpointError, match="no checkpoint of dtm-codec"):
        checkpoints.load(path)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        checkpoints.load(tmp_path / "missing.ckpt")
