"""What the documentation promises is there: files, commands, options, the lines of Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dtm_codec.cli import app
from dtm_codec.corpus import tokenize
from dtm_codec.speech.audio import read_audio, sample_path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_is_at_most_120_characters_wide(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if not line.lstrip().startswith("|")]
    assert [line for line in lines if len(line) > 120] == []


@pages
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r'\]\(([^)#]+)\)|<img src="([^"]+)"', page.read_text())
    local = [link or image for link, image in targets if not (link or image).startswith("http")]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_modules_that_the_architecture_names_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text())
    assert [name for name in named if not any((ROOT / p / name).exists() for p in ("", "src/dtm_codec"))] == []


@pages
def test_scripts_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"\b(?:benchmarks|examples)/\w+\.py", page.read_text())
    assert [name for name in named if not (ROOT / name).is_file()] == []


def commands(text: str) -> list[list[str]]:
    """Every call of `dtm-codec` in code, in its own lines or within a sentence, as words."""
    text = text.replace("\\\n", " ")
    inline = re.findall(r"`(dtm-codec [^`]*)`", text)
    own_line = re.findall(r"^(?: {4}|\$\(BIN\)/|\t\$\(BIN\)/)?(dtm-codec .*)$", text, re.MULTILINE)
    return [shlex.split(call, comments=True)[1:] for call in (*inline, *own_line)]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "Makefile"], ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(page.read_text()):
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands") and words and not words[0].startswith("-"):
            if words[0] not in command.commands and hasattr(command, "default"):
                words.insert(0, command.default)  # `recipe main` is short for `recipe run main`
            assert words[0] in command.commands, words
            command = command.commands[words.pop(0)]
        known = {"--help", "-h"}.union(*((*p.opts, *p.secondary_opts) for p in command.params))
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given <= known, (command.name, given - known)


def test_calls_are_found() -> None:
    text = "See `dtm-codec info -x`.\n\n    dtm-codec encode a.wav \\\n        --bitrate 800  # why\n"
    assert commands(text) == [["info", "-x"], ["encode", "a.wav", "--bitrate", "800"]]


def test_the_lines_of_python_in_the_readme_run() -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    audio, sample_rate = read_audio(sample_path())
    names: dict[str, Any] = {"audio": audio, "sample_rate": sample_rate}
    exec(code[1], names)
    assert names["audio"].shape == audio.shape
    assert names["encoded"].bits.total / names["encoded"].duration_s == pytest.approx(800, rel=0.01)


def test_the_lines_of_python_about_tokens_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those that need the hub."""
    for package in ("pyarrow", "transformers"):
        pytest.importorskip(package)
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    audio, sample_rate = read_audio(sample_path(), 16_000)
    tokenize(sample_path().parent, tmp_path / "tokens", workers=1)
    names: dict[str, Any] = {"audio": audio, "sample_rate": sample_rate, "folder": tmp_path / "tokens"}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tokens.md").read_text(), re.DOTALL)
    for block in blocks:
        if "push_to_hub" not in block:
            exec(block, names)
    assert names["decoded"].audio_values.shape == (1, 1, audio.size)
    assert len(names["ids"]) == 2
    assert len(blocks) == 8
