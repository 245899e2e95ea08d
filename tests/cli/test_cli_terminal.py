"""What reaches the terminal: printable text, one line for a mistake, and a bar for whatever takes long."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cli_support import Run, sweep
from rich.console import Console

import dtm_codec.cli
from dtm_codec.cli import app, terminal
from dtm_codec.speech.audio import write_audio
from dtm_codec.speech.utterance import Utterance

ESCAPE = "\x1b[2J"


def test_no_message_goes_past_the_one_way() -> None:
    folder = Path(dtm_codec.cli.__file__).parent
    others = {path for path in folder.glob("*.py") if path.name != "terminal.py"}
    assert len(others) > 10
    for path in others:
        direct = re.findall(r"typer\.s?echo|\bConsole\(|(?<![.\w])print\(|sys\.std(?:out|err)\.write", path.read_text())
        assert not direct, path


@pytest.mark.parametrize(
    "words",
    [
        ("encode", f"{ESCAPE}.wav", "-m", "{model}"),
        ("encode", f"no{ESCAPE}.wav"),
        ("encode", f"no{ESCAPE}*.wav"),
        ("encode", f"{ESCAPE}.wav", "-o", f"x{ESCAPE}.mp3"),
        ("encode", f"--no{ESCAPE}"),
        ("info", f"{ESCAPE}.dtm"),
        ("models", f"more{ESCAPE}"),
        ("tokenize", "corpus", "-o", f"out{ESCAPE}", "-m", "{model}", "--workers", "1"),
        ("evaluate", "identity", "--data", "corpus", "--metrics", "stoi", "-o", "run"),
        ("prepare", "mls", f"no{ESCAPE}", "-o", "x.jsonl"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.usefixtures("in_this_process")
def test_names_do_not_steer_the_terminal(run: Run, speech: Path, model: Path, words: tuple[str, ...]) -> None:
    speech.rename(f"{ESCAPE}.wav")
    Path("corpus").mkdir()
    Path(f"corpus/bad{ESCAPE}.wav").write_bytes(b"no audio")
    result = run(*(word.replace("{model}", str(model)) for word in words))
    told = result.stderr + result.stdout.decode()
    assert "\x1b" not in told
    assert "\\x1b[2J" in told


def test_log_lines_do_not_steer_it_either(tmp_path: Path) -> None:
    (tmp_path / f"bad{ESCAPE}.wav").write_bytes(b"no audio")
    (tmp_path / "set.jsonl").write_text(json.dumps({"audio_filepath": f"bad{ESCAPE}.wav"}) + "\n")
    command = [sys.executable, "-m", "dtm_codec", "shard", "set.jsonl", "-o", "shards"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)  # pytest has its own log
    assert result.stderr.startswith("skipped: cannot read bad\\x1b[2J.wav")
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("words", [("encode",), ("encode", "--foo"), ("encodee",), ("encode", "x.wav", "-b", "fast")])
def test_wrong_words_are_one_line_that_names_the_help(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.code == 2
    assert result.stderr.count("\n") == 1
    assert "--help)" in result.stderr


def test_no_words_at_all_give_the_help_alone(run: Run) -> None:
    result = run("stream")
    assert "Packets on standard input" in result.stdout.decode()
    assert result.stderr == ""


# Empty names


def parameters() -> Iterator[tuple[Any, Any]]:
    """Commands, each with every parameter of it that takes a value."""

    def below(group: Any) -> Iterator[Any]:
        for command in group.commands.values():
            yield from below(command) if hasattr(command, "commands") else [command]

    for command in below(typer.main.get_command(app)):
        for parameter in command.params:
            if not getattr(parameter, "is_flag", False):
                yield command, parameter


def test_nothing_is_called_by_an_empty_name() -> None:
    found = list(parameters())
    assert {"corpus", "data", "folders", "parquet", "inputs", "output", "runtime"} <= {p.name for _, p in found}
    for command, parameter in found:
        if (command.name, parameter.name) != ("bench", "memory"):  # whose help says what '' means
            is_option = parameter.opts[0].startswith("-")
            with pytest.raises(typer.BadParameter, match="''; allowed: anything but an empty name"):
                command.make_context(command.name, [parameter.opts[0], ""] if is_option else [""])


@pytest.mark.parametrize("command", ["encode", "decode", "info", "tokenize", "detokenize", "report"])
def test_an_empty_name_is_not_this_folder(run: Run, speech: Path, command: str) -> None:
    result = run(command, "")
    assert result.code == 2
    assert "''; allowed: anything but an empty name" in result.stderr
    assert [path.name for path in speech.parent.iterdir()] == ["speech.wav"]


def test_a_name_among_others_may_not_be_empty_either(run: Run, speech: Path, model: Path) -> None:
    assert run("encode", "speech.wav", "", "-m", model).code == 2
    assert run("encode", "speech.wav", "-m", model, "--output=").code == 2
    assert [path.name for path in speech.parent.iterdir()] == ["speech.wav"]


# Bars


def test_bars_appear_on_a_terminal_and_never_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for is_terminal in (True, False):
        text = io.StringIO()
        console = Console(file=text, force_terminal=is_terminal, width=80)
        with terminal.progress_bars(console, patience_s=0) as start:
            bar = start("file")
            for done in (0.0, 0.25, 0.5):
                bar(done, 1, "file 1 of 1")
                time.sleep(0.15)
        assert ("file 1 of 1" in text.getvalue()) is is_terminal
        assert ("50%" in text.getvalue()) is is_terminal
        assert (" left" in text.getvalue()) is is_terminal


def test_short_work_has_no_bar_and_silent_work_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for patience_s, seen in ((2.0, False), (0.05, True)):
        text = io.StringIO()
        console = Console(file=text, force_terminal=True, width=80)
        with terminal.progress_bars(console, patience_s=patience_s) as start:
            start("working")  # and is told nothing
            time.sleep(0.2)
        assert ("working" in text.getvalue()) is seen
        assert ("0:00:00 so far" in text.getvalue()) is seen


def slow(answer: Any) -> Callable[..., Any]:
    """Work of a room that takes a moment, and tells how much is done if anyone asks."""

    def work(*arguments: Any, on_progress: Callable[..., None] | None = None, **options: Any) -> Any:
        time.sleep(0.15)
        return answer

    return work


@pytest.mark.parametrize(
    ("words", "room", "answer", "shown"),
    [
        (("encode", "speech.wav", "-m", "{model}"), None, None, "file 1 of 1"),
        (("show", "speech.wav", "-m", "{model}"), None, None, "file 1 of 1"),
        (("info", "files", "--json"), "cli.codec.checked_facts", None, "files"),
        (("tokenize", "corpus", "-o", "out", "-m", "{model}"), None, None, "starting"),
        (("detokenize", "x", "-o", "out"), "corpus.detokenize", 1, "utterances"),
        (("export", "run", "-o", "out", "--data", "speech.wav"), "training.publishing.export", "id", "export"),
        (("export", "{model}", "-o", "out", "--onnx"), "backends.onnx.export.export_graphs", {}, "export"),
        (("prepare", "mls", "corpus", "-o", "x.jsonl"), "training.prepare.prepare", 1, "recordings"),
        (("shard", "x.jsonl", "-o", "out"), "training.prepare.write_shards", 1, "recordings"),
        (("page", "-o", "out"), "web.offline.folder.page_files", {}, "page"),
        (("report", "run", "-o", "out"), "evaluation.report.make_report", [], "report"),
        (("evaluate", "identity", "--data", "corpus", "--metrics", "stoi", "-o", "run"), None, None, "evaluate"),
    ],
    ids=lambda value: " ".join(map(str, value[:2])) if isinstance(value, tuple) else "",
)
@pytest.mark.usefixtures("in_this_process")
def test_every_long_command_has_the_bar(
    run: Run,
    speech: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    room: str | None,
    answer: Any,
    shown: str,
) -> None:
    Path("corpus").mkdir()
    write_audio("corpus/a.wav", sweep(0.5), 16_000)
    if words[0] == "info":
        assert run("encode", "speech.wav", "-m", model, "-o", "files/a.dtm").code == 0
        answer = dtm_codec.cli.codec.checked_facts(Path("files/a.dtm").read_bytes(), None)
    if room is not None:
        monkeypatch.setattr(f"dtm_codec.{room}", slow(answer))
    else:  # the real work, on a slow disk
        read = Utterance.read
        monkeypatch.setattr(Utterance, "read", lambda *given, **options: time.sleep(0.15) or read(*given, **options))
    monkeypatch.setattr(terminal, "PATIENCE_S", 0.01)
    for name, value in {"TERM": "xterm", "FORCE_COLOR": "1", "TTY_INTERACTIVE": "1"}.items():
        monkeypatch.setenv(name, value)
    result = run(*(word.replace("{model}", str(model)) for word in words))
    assert result.code == 0, result.stderr
    assert shown in result.stderr
    assert "so far" in result.stderr
