"""The command line as a user meets it: arguments in; exit code, standard output and standard error out."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli_support import Result, Run, sweep

from dtm_codec import DTMCodec, preset
from dtm_codec.audio import write_audio
from dtm_codec.cli import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs `dtm-codec` in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Result(int(stopped.value.code or 0), captured.out, captured.err.decode())

    return call


def tiny_codec(name: str) -> DTMCodec:
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    torch.manual_seed(0)
    return DTMCodec(replace(preset(name), name=name[-9:], dim=32, heads=2, mlp_hidden=48, **sizes)).eval()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an untrained VFR model of a few thousand parameters."""
    folder = tmp_path_factory.mktemp("model")
    tiny_codec("s-vfr-50").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def fixed_rate_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixed-rate-model")
    tiny_codec("s-ffr-50").save_pretrained(folder)
    return folder


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    path = tmp_path / "speech.wav"
    write_audio(path, sweep(), 16_000)
    return path
