"""The command line as a user meets it: arguments in; exit code, standard output and standard error out."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_support import Result, Run, sweep

from dtm_codec import DTMCodec, preset
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.cli import main
from dtm_codec.speech.audio import write_audio


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


def save_tiny_codec(name: str, folder: Path) -> None:
    """An untrained model of a few thousand parameters, with token statistics of one sound."""
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    torch.manual_seed(0)
    codec = DTMCodec(replace(preset(name), dim=32, heads=2, mlp_hidden=48, **sizes))
    codes = codec.encode(sweep(), 16_000).codes
    codec.token_model = TokenModel.from_counts(
        np.bincount(codes, minlength=codec.config.quantizer.codebook_size) + 0.01
    )
    codec.save_pretrained(folder)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a variable-rate model."""
    folder = tmp_path_factory.mktemp("model")
    save_tiny_codec("s-vfr-50", folder)
    return folder


@pytest.fixture(scope="session")
def fixed_rate_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fixed-rate model."""
    folder = tmp_path_factory.mktemp("fixed-rate-model")
    save_tiny_codec("s-ffr-50", folder)
    return folder


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    path = tmp_path / "speech.wav"
    write_audio(path, sweep(), 16_000)
    return path


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tokenize` starts no workers, which would take seconds."""

    def run_here(
        start: Callable[[], Callable[[Any], Any]], tasks: Iterable[Any], processes: int, threads: int
    ) -> Iterator[Any]:
        yield from map(start(), tasks)

    monkeypatch.setattr("dtm_codec.corpus.run.run_in_processes", run_here)
