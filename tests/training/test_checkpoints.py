"""A checkpoint is whole or not there; a full disk loses nothing."""

from __future__ import annotations

import errno
import logging
import random
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


def same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two


@pytest.mark.parametrize("published", [False, True])
def test_a_flipped_bit_is_noticed_wherever_it_is(tmp_path: Path, published: bool) -> None:
    state = {"step": 1, "config": {"seed": 0}, "codec": {"weight": torch.randn(500), "tau": torch.tensor(0.5)}}
    if published:
        path = tmp_path / checkpoints.PUBLISHED
        checkpoints.write_safetensors(path, state)
    else:
        path = checkpoints.save(tmp_path, 1, state, keep_every=1)
    whole, draw, refused = path.read_bytes(), random.Random(0), 0
    places = draw.sample(range(len(whole)), 300)
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        try:
            assert same(checkpoints.load(path), state), f"byte {place} of {len(whole)}"  # padding may differ
        except CheckpointError:
            refused += 1
    assert refused > 150


def test_a_damaged_newest_checkpoint_is_put_aside_for_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, newest = (checkpoints.save(tmp_path, step, {**STATE, "step": step}, keep_every=100) for step in (10, 20))
    broken = newest.read_bytes()[:500]
    newest.write_bytes(broken)
    with pytest.raises(CheckpointError, match=f"{newest}.*the one before it: {before}"):
        checkpoints.load(tmp_path)
    with caplog.at_level(logging.WARNING):
        path, state = checkpoints.load_newest(tmp_path)
    assert (path, state["step"]) == (before, 10)
    assert str(newest) in caplog.text
    assert names(tmp_path) == [before.name, f"{newest.name}.damaged"]
    assert (tmp_path / f"{newest.name}.damaged").read_bytes() == broken


def test_if_no_checkpoint_is_whole_nothing_is_put_aside(tmp_path: Path) -> None:
    paths = [checkpoints.save(tmp_path, step, STATE, keep_every=100) for step in (10, 20)]
    for path in paths:
        path.write_bytes(b"text")
    with pytest.raises(CheckpointError, match=r"step-00000020\.ckpt is no readable checkpoint"):
        checkpoints.load_newest(tmp_path)
    assert names(tmp_path) == [path.name for path in paths]


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
