"""One spelling of options on all commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cli_support import Run, sweep

from dtm_codec.cli import app
from dtm_codec.speech.audio import write_audio

NOWHERE = "cuda:99"


def commands() -> dict[str, dict[str, Any]]:
    """Options of every command by their long names."""

    def below(group: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from below(command, f"{path}{name} ")
            else:
                yield f"{path}{name}", command

    found = below(typer.main.get_command(app), "")
    return {name: {o: p.opts for p in command.params for o in p.opts if o[:2] == "--"} for name, command in found}


def test_what_a_command_writes_is_named_by_output() -> None:
    spellings = {o for options in commands().values() for o in options if o.startswith("--out")}
    assert spellings == {"--output"}
    writing = {name for name, options in commands().items() if "--output" in options}
    assert writing == {
        *("encode", "decode", "thin", "show", "tokenize", "detokenize", "train", "export", "prepare", "shard"),
        *("evaluate", "report", "recipe run", "recipe train", "bench", "listening new", "listening export-webmushra"),
        "page",
    }
    assert all("-o" in commands()[name]["--output"] for name in writing)


def test_what_can_be_given_a_bitrate_can_be_given_any_rate_and_selector() -> None:
    rated = {name: options for name, options in commands().items() if "--bitrate" in options}
    assert rated.keys() == {"encode", "show", "tokenize", "thin", "stream encode"}
    assert all("-b" in options["--bitrate"] and "--token-rate" in options for options in rated.values())
    for name in ("encode", "show", "tokenize"):  # a stream has its own selector, and thinning none
        assert {"--tau", "--selector"} <= rated[name].keys()


def test_what_runs_a_network_has_a_device() -> None:
    idle = {"info", "models", "prepare", "shard", "report", "listening results", "listening export-webmushra"}
    idle |= {"page"}  # a browser runs it
    idle |= {"thin", "recipe train"}  # tokens alone; each run has its accelerator in its configuration
    cpu_by_definition = {"bench"}  # it measures processor time of one thread
    without = {name for name, options in commands().items() if "--device" not in options}
    assert without == idle | cpu_by_definition


@pytest.mark.parametrize("spelling", ["500bps", "0.5k", "0.5kbps", "0.5 KBPS", "5e2"])
def test_a_bitrate_may_have_a_unit(run: Run, speech: Path, model: Path, spelling: str) -> None:
    for option, value, output in (("--bitrate", "500", "plain.dtm"), ("-b", spelling, "unit.dtm")):
        assert run("encode", "speech.wav", "-m", model, option, value, "-o", output).code == 0
    assert Path("unit.dtm").read_bytes() == Path("plain.dtm").read_bytes()


def test_a_token_rate_may_have_a_unit(run: Run, speech: Path, model: Path) -> None:
    for value, output in (("25", "plain.dtm"), ("25Hz", "unit.dtm")):
        assert run("encode", "speech.wav", "-m", model, "--token-rate", value, "-o", output).code == 0
    assert Path("unit.dtm").read_bytes() == Path("plain.dtm").read_bytes()


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--bitrate", "fast", "as 800, 800bps or 0.8k"),
        ("--bitrate", "0", "as 800, 800bps or 0.8k"),
        ("--bitrate", "-5bps", "as 800, 800bps or 0.8k"),
        ("--bitrate", "800hz", "as 800, 800bps or 0.8k"),
        ("--bitrate", "k", "as 800, 800bps or 0.8k"),
        ("--bitrate", "nan", "as 800, 800bps or 0.8k"),
        ("--token-rate", "800bps", "as 50 or 50Hz"),
        ("--tau", "inf", "allowed: a number > 0"),
        ("--tau", "1k", "allowed: a number > 0"),
    ],
)
@pytest.mark.parametrize("command", ["encode", "show", "tokenize"])
def test_a_wrong_rate_is_named_with_what_is_allowed(
    run: Run, speech: Path, command: str, option: str, value: str, allowed: str
) -> None:
    result = run(command, "speech.wav", "-o", "out", option, value)
    assert result.code == 2
    assert f"'{value}'" in result.stderr
    assert allowed in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("encode", "speech.wav", "-m", "{model}"),
        ("decode", "speech.dtm", "-m", "{model}"),
        ("show", "speech.wav", "-m", "{model}"),
        ("tokenize", "corpus", "-o", "tokens", "-m", "{model}"),
        ("detokenize", "made", "-o", "audio"),
        ("evaluate", "dtm:{model}", "--data", "corpus", "--metrics", "stoi", "-o", "run"),
        ("recipe", "main", "--model", "vfr-50={model}", "--data", "en.jsonl", "--metrics", "stoi", "-o", "run"),
        ("serve", "-m", "{model}"),
        ("listening", "new", "test.yaml", "-o", "test"),
    ],
    ids=lambda words: words[0],
)
def test_a_device_that_is_not_there_is_one_line(run: Run, speech: Path, model: Path, words: tuple[str, ...]) -> None:
    Path("corpus").mkdir()
    write_audio(Path("corpus/a.wav"), sweep(0.5), 16_000)
    Path("en.jsonl").write_text('{"audio_filepath": "corpus/a.wav", "lang": "en"}\n')
    Path("test.yaml").write_text(f"reference: corpus\nsystems: {{ours: 'dtm:{model}'}}\n")
    if words[0] == "decode":
        run("encode", "speech.wav", "-m", model)
    if words[0] == "detokenize":
        assert run("tokenize", "corpus", "-o", "made", "-m", model, "--workers", 1).code == 0
    result = run(*(word.format(model=model) for word in words), "--device", NOWHERE)
    assert result.code == 2
    assert f"device = '{NOWHERE}'; allowed: one that torch finds here" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        (["bench"], "--seconds", "nan"),
        (["bench"], "--seconds", "inf"),
        (["bench"], "--memory", "10,-5"),
        (["bench"], "--memory", "ten"),
        (["serve"], "--max-seconds", "nan"),
        (["show", "a.wav"], "--start", "inf"),
    ],
)
def test_numbers_that_are_none_are_refused(run: Run, command: list[str], option: str, value: str) -> None:
    result = run(*command, option, value)
    assert result.code == 2
    assert option in result.stderr
    assert len(result.stderr.splitlines()) == 1
