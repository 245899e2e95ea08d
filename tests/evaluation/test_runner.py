"""Runs: each utterance once per system, in parallel or not, whatever kills them; files as specified."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from dtm_codec.errors import AudioError, DTMCodecError
from dtm_codec.evaluation import systems
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.runner import evaluate
from dtm_codec.evaluation.summary import Summary
from dtm_codec.evaluation.systems.base import Coded, Samples
from dtm_codec.evaluation.systems.plain import Identity, LowPass
from dtm_codec.system.locks import FolderInUseError, folder_in_use

pyarrow = pytest.importorskip("pyarrow.parquet")


class Counting(Identity):
    """Identity that counts what it encodes."""

    encoded = 0
    version = "1"

    @property
    def identity(self) -> str:
        return self.version

    def encode(self, audio: Samples) -> Coded:
        Counting.encoded += 1
        return super().encode(audio)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    from dtm_codec.evaluation.systems import plain

    monkeypatch.setattr(plain, "Counting", Counting, raising=False)
    monkeypatch.setitem(systems._SYSTEMS, "counting", "plain:Counting")
    monkeypatch.setattr(Counting, "encoded", 0)
    return Counting


def test_summary_has_what_the_issue_of_results_needs(manifest: Path, tmp_path: Path) -> None:
    utterances = read_data(manifest)
    summary = evaluate(["identity", "lowpass"], ["stoi", "si-sdr"], utterances, tmp_path, source="mini")
    data = json.loads((tmp_path / "summary.json").read_text())
    assert set(data["systems"]) == {"identity", "lowpass"}
    identity = data["systems"]["identity"]
    assert set(identity["bps"]) == {"content", "position", "total", "written"}
    assert identity["bps"]["total"] == pytest.approx(256_000)
    assert set(identity["metrics"]["stoi"]) == {"mean", "low", "high", "n", "judge"}
    assert identity["metrics"]["stoi"]["mean"] == pytest.approx(1.0)
    assert identity["metrics"]["stoi"]["n"] == 3
    assert "pystoi" in identity["metrics"]["stoi"]["judge"]
    assert Summary.load(tmp_path) == summary


def test_parquet_keeps_every_value_and_the_mean_follows_from_it(manifest: Path, tmp_path: Path) -> None:
    summary = evaluate(["lowpass"], ["stoi", "si-sdr"], read_data(manifest, ["lang=en"]), tmp_path)
    table = pyarrow.read_table(tmp_path / "utterances.parquet").to_pydict()
    assert table["utterance"] == ["0.wav", "1.wav"]
    assert table["lang"] == ["en", "en"]
    for name, estimate in summary.systems["lowpass"].metrics.items():
        assert np.mean(table[name]) == pytest.approx(estimate.mean)
    assert sum(table["total_bits"]) / sum(table["seconds"]) == summary.systems["lowpass"].bps.total  # type: ignore[union-attr]


def test_done_is_done(manifest: Path, tmp_path: Path, counting: type[Counting]) -> None:
    utterances = read_data(manifest)
    evaluate(["counting"], ["si-sdr"], utterances[:2], tmp_path)
    assert counting.encoded == 2
    evaluate(["counting"], ["si-sdr"], utterances, tmp_path)
    assert counting.encoded == 3
    evaluate(["counting"], ["si-sdr", "mel"], utterances, tmp_path)  # a new metric needs all of them again
    assert counting.encoded == 6
    summary = evaluate(["counting"], ["si-sdr", "mel"], utterances, tmp_path)
    assert counting.encoded == 6
    assert {name: e.n for name, e in summary.systems["counting"].metrics.items()} == {"si-sdr": 3, "mel": 3}


def test_a_retrained_model_is_judged_anew(
    manifest: Path, tmp_path: Path, counting: type[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    utterances = read_data(manifest)
    evaluate(["counting"], ["si-sdr"], utterances, tmp_path)
    monkeypatch.setattr(Counting, "version", "2")
    evaluate(["counting"], ["si-sdr"], utterances, tmp_path)
    assert counting.encoded == 6


def test_a_system_that_fails_on_one_utterance_keeps_the_others(
    manifest: Path, tmp_path: Path, counting: type[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(self: Counting, audio: Samples) -> Coded:
        Counting.encoded += 1
        if Counting.encoded == 2:
            raise AudioError("too loud")
        return Identity.encode(self, audio)

    monkeypatch.setattr(Counting, "encode", encode)
    summary = evaluate(["counting"], ["si-sdr"], read_data(manifest), tmp_path)
    assert summary.systems["counting"].failures == {"1.wav": "too loud"}
    assert summary.systems["counting"].metrics["si-sdr"].n == 2


def test_a_recording_that_breaks_off_is_not_judged(own_manifest: Path, tmp_path: Path) -> None:
    cut = own_manifest.with_name("1.wav")
    cut.write_bytes(cut.read_bytes()[:8_044])
    summary = evaluate(["identity"], ["si-sdr"], read_data(own_manifest), tmp_path / "run")
    (failure,) = summary.systems["identity"].failures.items()
    assert failure[0] == "1.wav"
    assert failure[1].startswith("the file breaks off: 0.25 s of ")
    assert summary.systems["identity"].metrics["si-sdr"].n == 2


def test_a_folder_is_written_by_one_run_at_a_time(manifest: Path, tmp_path: Path) -> None:
    with folder_in_use(tmp_path), pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()} "):
        evaluate(["identity"], ["si-sdr"], read_data(manifest), tmp_path)
    assert list(tmp_path.iterdir()) == []
    evaluate(["identity"], ["si-sdr"], read_data(manifest), tmp_path)


def test_a_judge_without_a_value_for_an_utterance_leaves_it_out(tmp_path: Path) -> None:
    from dtm_codec.speech.audio import write_audio

    write_audio(tmp_path / "silence.wav", np.zeros(16_000, np.float32), 16_000)
    summary = evaluate(["identity"], ["stoi", "mel"], read_data(tmp_path), tmp_path / "run")
    assert set(summary.systems["identity"].metrics) == {"mel"}


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As workers have: sums of two threads round differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_processes_give_what_one_process_gives(models: Path, manifest: Path, tmp_path: Path) -> None:
    calibrated = f"dtm:{models / 's-vfr-50' / 'export'}?bitrate=700&calibrate={manifest}"
    names, judges, utterances = ["identity", calibrated], ["stoi", "si-sdr"], read_data(manifest)
    one = evaluate(names, judges, utterances, tmp_path / "one")
    two = evaluate(names, judges, utterances, tmp_path / "two", jobs=2)
    assert one == two
    first, second = (pyarrow.read_table(tmp_path / name / "utterances.parquet") for name in ("one", "two"))
    assert first.equals(second)


def test_a_judge_that_cannot_be_loaded_is_one_clear_error(manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "speaker.onnx").write_bytes(b"no model")
    judge = f"spk-sim:onnx?model={tmp_path / 'speaker.onnx'}"
    with pytest.raises(DTMCodecError, match=r"speaker\.onnx"):
        evaluate(["identity"], [judge], read_data(manifest), tmp_path / "run", jobs=2)


RUN = """
import sys
from pathlib import Path
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.runner import evaluate

manifest, out, *names = sys.argv[1:]
evaluate(names, ["stoi"], read_data(manifest), Path(out), progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_killed_with_9_it_goes_on_and_does_each_utterance_once(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [f"lowpass:{hertz}" for hertz in range(1000, 3000, 100)]  # 20 systems x 3 utterances
    out, done = tmp_path / "run", 0
    for stop_after in (4, 25):
        command = [sys.executable, "-c", RUN, str(manifest), str(out), *wanted]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
            assert run.stdout is not None
            first = int(run.stdout.readline())
            assert first in (done, done + 1)  # nothing is lost; one may be on disk that was not told yet
            while done < stop_after:
                done = int(run.stdout.readline())
            os.kill(run.pid, signal.SIGKILL)
            done = max([done, *map(int, run.stdout.readlines())])
    left: list[str] = []
    decode = LowPass.decode
    monkeypatch.setattr(LowPass, "decode", lambda self, coded: left.append(self.name) or decode(self, coded))
    summary = evaluate(wanted, ["stoi"], read_data(manifest), out)
    assert {name: system.metrics["stoi"].n for name, system in summary.systems.items()} == dict.fromkeys(wanted, 3)
    assert 60 - done - 1 <= len(left) <= 60 - done, left
