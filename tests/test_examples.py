"""The scripts in examples/ run as they are, on the bundled recordings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dtm_codec.speech.audio import audio_info, sample_path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_speech_is_sent_as_bytes(tmp_path: Path) -> None:
    done = run(tmp_path, "send_over_network.py")
    assert done.returncode == 0, done.stderr
    sent = next(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("sent"))
    original, received = audio_info(sample_path()), audio_info(tmp_path / "received.wav")
    assert received.num_samples == original.num_samples
    assert sent < 800 / 8 * original.duration_s + 30


def test_a_call_over_udp_goes_on_when_packets_get_lost(tmp_path: Path) -> None:
    done = run(tmp_path, "call_over_udp.py", "--loss", "20")
    assert done.returncode == 0, done.stderr
    sent, lost, heard, filled = map(int, re.findall(r"(?<![.\d])\d+(?![.\d])", done.stdout))
    assert heard == sent - lost
    assert 0 < filled <= lost
    seconds = audio_info(sample_path()).duration_s
    assert audio_info(tmp_path / "heard.wav").duration_s == pytest.approx(seconds, abs=0.2)


def test_systems_are_compared_at_one_bitrate(tmp_path: Path) -> None:
    done = run(tmp_path, "compare_codecs.py", "--metrics", "stoi")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| DTM-Codec")]
    assert len(rows) == 2
    assert "lagrangian" in rows[1]
    assert (tmp_path / "comparison" / "summary.json").is_file()


def test_rates_that_do_not_match_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "compare_codecs.py", "identity", "dtm:small?bitrate=800", "--metrics", "stoi")
    assert done.returncode == 1
    assert "not matched: identity 256000 bps" in done.stderr


def test_systems_of_unknown_rates_are_compared_all_the_same(tmp_path: Path) -> None:
    folder = f"folder:{sample_path().parent}"
    done = run(tmp_path, "compare_codecs.py", f"{folder}?name=A", f"{folder}?name=B", "--metrics", "stoi")
    assert done.returncode == 0, done.stderr
    assert "| A | – |" in done.stdout


def test_a_corpus_becomes_tensors_and_speech_again(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    done = run(tmp_path, "speech_language_model.py")
    assert done.returncode == 0, done.stderr
    batch = torch.load(tmp_path / "tokens" / "batch.pt")
    recordings = sorted(sample_path().parent.glob("*.flac"))
    assert batch["ids"] == [path.name for path in recordings]
    assert batch["symbols"].shape[0] == len(recordings)
    for path in recordings:
        steps = -(-audio_info(path).num_samples // 160)
        assert audio_info(tmp_path / "tokens" / "audio" / f"{path.stem}.wav").num_samples == 160 * steps


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text() + Path(__file__).with_name("test_language_model.py").read_text()
    assert all(path.name in here for path in EXAMPLES.glob("*.py"))
