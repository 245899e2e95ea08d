"""The codec in Chromium as a system under test: its files are Python's, its time is the page's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from dtm_codec import DTMCodec
from dtm_codec.errors import ConfigError, DTMCodecError
from dtm_codec.evaluation import systems
from dtm_codec.evaluation.systems import page
from dtm_codec.evaluation.systems.programs import ProgramError
from dtm_codec.speech.audio import read_audio, sample_path

pytest.importorskip("selenium")
needs_chromium = pytest.mark.skipif(
    shutil.which("chromedriver") is None or shutil.which("npm") is None, reason="needs chromedriver and npm"
)


@needs_chromium
def test_it_codes_as_python_does_and_says_how_long_it_took() -> None:
    audio = read_audio(sample_path(), 16_000)[0][:40_000]
    system, codec = systems.build("page:small?bitrate=700"), DTMCodec.from_pretrained(backend="onnx")
    coded = system.encode(audio)
    encoded = codec.encode(audio, 16_000, bitrate=700)
    theirs = codec.from_bytes(coded.payload)
    assert coded.bits == encoded.bits
    written = theirs.to_file("compact", codec.token_model).info
    assert coded.written == written.mask_bits + written.token_bits_written
    assert np.sum(theirs.mask != encoded.mask) <= 2  # one token a step later, and what its neighbours make of it
    assert np.sum(theirs.codes != encoded.codes) <= 4
    middle = system.clock()
    assert np.abs(system.decode(coded) - codec.decode(theirs)).max() < 1e-3
    assert 0 < middle < system.clock()
    assert system.elapsed() > 0
    assert system.identity.startswith(codec.model_id)
    assert system.parameters == codec.num_parameters
    assert system.peak_mb() > 50


@needs_chromium
def test_what_the_server_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(DTMCodecError, match=str(tmp_path)):
        systems.build(f"page:{tmp_path}").encode(np.zeros(160, np.float32))


@needs_chromium
def test_a_browser_that_does_not_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "chromedriver"
    driver.write_text("#!/bin/sh\nexit 1\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ProgramError, match=r"^page: Chromium failed: .*chromedriver"):
        systems.build("page:small").encode(np.zeros(160, np.float32))


@needs_chromium
def test_a_page_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PATIENCE_S", 2)
    monkeypatch.setattr(page, "_OPEN", "await new Promise(() => {});")
    with pytest.raises(ProgramError, match=r"^page: Chromium failed: script timeout"):
        systems.build("page:small").encode(np.zeros(160, np.float32))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("page", "page: which model"),
        ("page:small?bitrate=-1", "bitrate"),
        ("page:small?threads=0", "threads"),
        ("page:small?tau=1", "tau"),
    ],
)
def test_bad_options_are_named(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        systems.build(name)


def test_no_browser_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(DTMCodecError, match="page: needs chromedriver, which is not installed"):
        systems.build("page:small").encode(np.zeros(160, np.float32))
