"""A family trains itself: what is missing, in order, and however the queue ends, it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import training_support as support

from dtm_codec.errors import ConfigError, DTMCodecError
from dtm_codec.training import checkpoints, family
from dtm_codec.training.family import FamilyRun

ROOT = Path(__file__).parents[2]

FAMILY = """
settings: [token_minutes=0, log_every=3]
fine_tuning: [log_every=2]
runs:
  - {config: tiny.yaml, seeds: [1, 2]}
  - {config: tuned.yaml, after: s-vfr-50}
"""


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """Two seeds of a tiny run, and one that starts from the first."""
    support.tiny_file(tmp_path)
    (tmp_path / "tuned.yaml").write_text("base: tiny.yaml\nmodel: {name: tuned}\nmax_steps: 2\n")
    (tmp_path / "family.yaml").write_text(FAMILY)
    return tmp_path / "family.yaml"


def planned(described: Path, *settings: str) -> list[FamilyRun]:
    return family.plan(described, described.parent / "runs", [f"data.train={support.SAMPLES}", *settings])


def cores() -> list[list[int]]:
    return [[core] for core in sorted(os.sched_getaffinity(0))]


def test_neighbours_with_the_same_seeds_take_turns(described: Path) -> None:
    pair = "runs:\n  - {config: tiny.yaml, seeds: [1, 2]}\n  - {config: tuned.yaml, seeds: [1, 2]}\n"
    described.write_text(pair)
    assert [run.name for run in planned(described)] == ["s-vfr-50", "tuned", "s-vfr-50-seed2", "tuned-seed2"]


def test_runs_have_names_seeds_and_what_they_start_from(described: Path) -> None:
    runs = planned(described)
    assert [run.name for run in runs] == ["s-vfr-50", "s-vfr-50-seed2", "tuned"]
    assert [run.config.seed for run in runs] == [1, 2, 0]
    assert runs[2].config.init_from == str(described.parent / "runs" / "s-vfr-50")
    assert [run.config.log_every for run in runs] == [3, 3, 2]
    assert [run.config.log_every for run in planned(described, "log_every=5")] == [5, 5, 5]


def test_what_was_judged_already_is_left_out_unless_another_starts_from_it(described: Path) -> None:
    runs = planned(described)
    assert [run.name for run in family.without(runs, {"s-vfr-50", "s-vfr-50-seed2"})] == ["s-vfr-50", "tuned"]
    assert [run.name for run in family.without(runs, {"s-vfr-50", "tuned"})] == ["s-vfr-50-seed2"]
    assert family.without(runs, ()) == runs


def test_any_folder_can_hold_the_runs(described: Path) -> None:
    odd = described.parent / "runs #2: mine"
    assert family.plan(described, odd)[2].config.init_from == str(odd / "s-vfr-50")


def test_a_run_is_done_when_its_last_checkpoint_is_exported(described: Path) -> None:
    run = planned(described, "max_steps=4")[0]
    export = run.folder / "export"
    export.mkdir(parents=True)
    for path, written in ((export / "model.safetensors", 1), (export / "config.json", 1)):
        path.touch()
        os.utime(path, (written, written))
    assert not run.is_done()  # an export without a checkpoint
    last = run.folder / "step-00000004.ckpt"
    last.touch()
    os.utime(last, (2, 2))
    assert not run.is_done()  # killed before the export of its last checkpoint
    os.utime(export / "config.json", (3, 3))
    assert run.is_done()
    assert not planned(described, "max_steps=5")[0].is_done()


def test_a_published_folder_is_a_run_that_can_go_on(described: Path) -> None:
    run = planned(described)[0]
    run.folder.mkdir(parents=True)
    (run.folder / checkpoints.PUBLISHED).touch()
    run.look()
    assert (run.steps, run.is_done()) == (0, False)


def test_all_are_trained_and_nothing_is_trained_twice(described: Path) -> None:
    runs = planned(described, "max_steps=2")
    order: list[str] = []

    def show() -> None:
        order.extend(run.name for run in runs if run.state == "training" and run.name not in order)

    family.train_family(runs, cores()[:1], 600, show)
    assert order == ["s-vfr-50", "s-vfr-50-seed2", "tuned"]
    assert all(run.state == "done" and run.steps == 2 for run in runs)
    assert "weights from" in (runs[2].folder / family.LOG_FILE).read_text()
    written = {run.name: checkpoints.find(run.folder).stat().st_mtime for run in runs}
    again = planned(described, "max_steps=2")
    family.train_family(again, cores(), 600, lambda: None)
    assert {run.name: checkpoints.find(run.folder).stat().st_mtime for run in again} == written


def test_a_run_that_fails_is_named_and_the_others_go_on(described: Path) -> None:
    runs = planned(described, "max_steps=1")
    runs[0].folder.mkdir(parents=True)
    (runs[0].folder / "step-00000001.ckpt").write_bytes(b"damaged")
    with pytest.raises(DTMCodecError, match=rf"s-vfr-50 failed, see .*{family.LOG_FILE}"):
        family.train_family(runs, cores()[:1], 600, lambda: None)
    assert [run.state for run in runs] == ["failed", "done", "waiting"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_however_the_queue_ends_its_runs_end_with_a_checkpoint(described: Path, end: signal.Signals) -> None:
    out = described.parent / "runs"
    arguments = [f"data.train={support.SAMPLES}", "max_steps=100000", "checkpoint_every=100000"]
    command = [sys.executable, "-m", "dtm_codec", "recipe", "train", *arguments]
    queue = subprocess.Popen([*command, "--family", str(described), "-o", str(out), "--jobs", "1"])
    metrics = out / "s-vfr-50" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 2)
    assert checkpoints.latest(out / "s-vfr-50") is None
    queue.send_signal(end)
    queue.wait(120)
    wait_until(lambda: checkpoints.latest(out / "s-vfr-50") is not None)


def wait_until(true: object) -> None:
    deadline = time.monotonic() + 120
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("runs: []", "at least one"),
        ("runs: [{config: tiny.yaml}, {config: tiny.yaml}]", "every run once"),
        ("runs: [{config: tiny.yaml, after: nobody}]", "after = 'nobody'; allowed: a run that stands before it"),
        ("runs: [{configs: tiny.yaml}]", "unknown key"),
        ("runs: [{config: none.yaml}]", "no such file"),
    ],
)
def test_a_family_that_cannot_be_trained_is_refused(described: Path, text: str, reason: str) -> None:
    described.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        planned(described)


@pytest.mark.parametrize("name", ["small", "paper"])
def test_bundled_families_are_sound(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    runs = family.plan(family.find_family(name), tmp_path)
    assert {run.name.partition("-seed")[0] for run in runs} >= {run.after for run in runs if run.after}
    with pytest.raises(ConfigError, match="no family 'huge'"):
        family.find_family("huge")


def test_time_left_follows_the_speed_of_those_that_have_begun(described: Path) -> None:
    runs = planned(described, "max_steps=100")
    assert family.seconds_left(runs, 1) is None
    runs[0].seconds_a_step, runs[0].steps, runs[0].state = 2.0, 50, "training"
    assert family.seconds_left(runs, 1) == pytest.approx(2 * (50 + 100 + 100))
    assert family.seconds_left(runs, 2) == pytest.approx(2 * 250 / 2)
