"""The commands, as a user types them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from dtm_codec.cli import main
from dtm_codec.evaluation import bench


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def test_evaluate_then_report(manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    options = ("--data", manifest, "--where", "lang=en", "--metrics", "stoi,si-sdr", "-o", tmp_path / "run")
    assert run("evaluate", "identity", "lowpass", *options) == 0
    assert "| Reference | 256000 |" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["utterances"] == 2
    assert run("report", tmp_path / "run", "-o", tmp_path / "report") == 0
    assert (tmp_path / "report" / "report.html").is_file()


def test_a_report_compares_systems_with_one_of_them_in_pairs(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    first, second = "dtm:small?bitrate=400", "dtm:small?bitrate=1280"
    options = ("--data", manifest, "--metrics", "stoi,lsd", "-o", tmp_path / "run")
    assert run("evaluate", first, second, *options) == 0
    report = ("report", tmp_path / "run", "-o", tmp_path / "report", "--baseline")
    assert run(*report, first) == 0
    text = (tmp_path / "report" / "report.md").read_text()
    (row,) = [line for line in text.split("## Compared with")[1].splitlines() if "small, 1280 bps |" in line]
    intervals = re.findall(r"([+-][\d.]+) … ([+-][\d.]+)", row)
    assert len(intervals) == 2
    assert all(float(low) > 0 for low, _ in intervals)  # more bits are better, whichever way a metric points
    capsys.readouterr()
    assert run(*report, "opus:6") == 2
    assert f"baseline 'opus:6'; allowed: {first}, {second}" in capsys.readouterr().err


def test_a_system_that_fails_on_all_is_named_with_its_reason_and_exits_1(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    options = ("--data", manifest, "--metrics", "si-sdr", "-o", tmp_path / "run")
    assert run("evaluate", "identity", "encodec:1.5?model=random", *options) == 1
    shown = capsys.readouterr()
    assert "| Reference | 256000 |" in shown.out
    failed = next(line for line in shown.err.splitlines() if " failed on " in line)
    assert "encodec:1.5?model=random failed on 3 of 3 utterances" in failed
    assert "pip install transformers" in failed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "codex", "--data", "{data}", "-o", "{out}"], "unknown system 'codex'"),
        (["evaluate", "identity", "--data", "{data}", "-o", "{out}", "--metrics", "nice"], "unknown metric 'nice'"),
        (["evaluate", "identity", "--data", "nowhere", "-o", "{out}"], "no speech at 'nowhere'"),
        (["evaluate", "dtm:nowhere", "--data", "{data}", "-o", "{out}"], "no model 'nowhere'"),
        (["report", "{out}", "-o", "{out}"], "no finished run"),
        (["recipe", "table", "-o", "{out}"], "no recipe 'table'"),
        (["recipe", "main", "-o", "{out}", "--family", "big"], "family 'big'"),
        (["recipe", "main", "-o", "{out}"], "need a test set"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    arguments: list[str], message: str, manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.format(data=manifest, out=tmp_path / "out") for argument in arguments]
    assert run(*filled) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]


def test_bench_times_in_turns_and_measures_memory(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = f"dtm:{models / 's-vfr-50' / 'export'}"
    options = ("--seconds", 2, "--rounds", 2, "--memory", "1,2", "-o", tmp_path / "bench.json")
    assert run("bench", ours, "identity", f"{ours}?selector=dp&s_max=4", *options) == 0
    first, second, swapped = json.loads((tmp_path / "bench.json").read_text())
    assert first["encode_ratio"] == first["decode_ratio"] == 1.0
    assert second["encode_ratio"] < 1
    assert 0 < first["selector_share"] < 100
    assert 0 < swapped["selector_share"] < 100
    assert second["selector_share"] is None
    assert set(first["peak_mb"]) == {"1.0", "2.0"}
    assert 50 < second["peak_mb"]["1.0"] < first["peak_mb"]["1.0"] < 2000  # a process of its own, not this one's peak
    assert "| Reference |" in capsys.readouterr().out


def test_speech_of_the_bench_is_as_long_as_asked() -> None:
    assert bench.speech(30).shape == (480_000,)
