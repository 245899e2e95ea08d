"""Laws of the command line as a whole."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cli_support import Run

from dtm_codec import PRESETS, __version__
from dtm_codec.cli import app


def test_version_and_module_entry(run: Run) -> None:
    assert run("--version").stdout.decode().strip() == f"dtm-codec {__version__}"
    module = subprocess.run([sys.executable, "-m", "dtm_codec", "--version"], capture_output=True, check=True)
    assert module.stdout.decode().strip() == f"dtm-codec {__version__}"


def test_help_needs_no_heavy_package() -> None:
    code = (
        "import sys\nfrom dtm_codec.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'matplotlib', 'numba', 'pyarrow', 'fastapi', 'scipy', 'ray'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert result.returncode == 0, result.stderr.decode()


def test_every_command_and_option_has_help(run: Run) -> None:
    def check(command: Any, path: tuple[str, ...]) -> None:
        assert command.help, path
        assert run(*path, "--help").code == 0
        for parameter in command.params:
            assert parameter.help, f"{path} {parameter.name}"
        for name, below in getattr(command, "commands", {}).items():
            check(below, (*path, name))

    group = typer.main.get_command(app)
    assert {"encode", "decode", "info", "show", "models"} <= group.commands.keys()
    check(group, ())


def test_a_wrong_command_exits_2(run: Run) -> None:
    result = run("encodee", "x.wav")
    assert result.code == 2
    assert "encodee" in result.stderr


def test_models_lists_every_preset_with_its_size_and_rate(run: Run) -> None:
    listed = {row["name"]: row for row in json.loads(run("models", "--json").stdout) if row["kind"] == "preset"}
    assert listed.keys() == PRESETS.keys()
    paper = listed["vfr-50"]
    assert (paper["frame_rate"], paper["token_rate"], paper["bps"]) == (100, 50, 800)
    assert 125e6 < paper["parameters"] < 129e6
    assert listed["ffr-25"]["bps"] == 400


def test_models_shows_the_bundled_ones_first(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtm_codec.config.PRESETS", {"vfr-25": PRESETS["vfr-25"]})
    monkeypatch.setattr("dtm_codec.models.hub.BUNDLED", tmp_path)
    shutil.copytree(model, tmp_path / "tiny")
    header, bundled, preset = run("models").stdout.decode().splitlines()
    rates = ["frame", "rate", "token", "rate", "bps", "latency"]
    assert header.split() == ["name", "kind", "selector", "parameters", *rates]
    assert bundled.split()[:3] == ["tiny", "bundled", "ple"]
    assert preset.split()[:2] == ["vfr-25", "preset"]
    assert preset.split()[-7:] == ["50", "Hz", "25", "Hz", "400", "no", "bound"]
