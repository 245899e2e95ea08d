"""Laws of `show` and of the picture it draws."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cli_support import Run, sweep

from dtm_codec.plotting import Picture, local_token_rate, render
from dtm_codec.speech.audio import write_audio

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("arguments", [("--bitrate", 500), ("--selector", "stride")])
def test_show_draws_a_png(run: Run, speech: Path, model: Path, arguments: tuple[object, ...]) -> None:
    result = run("show", "speech.wav", "-o", "picture.png", "-m", model, *arguments)
    assert result.code == 0, result.stderr
    assert Path("picture.png").read_bytes().startswith(PNG)


def test_show_draws_fixed_rate_models_too(run: Run, speech: Path, fixed_rate_model: Path) -> None:
    assert run("show", "speech.wav", "-m", fixed_rate_model).code == 0
    assert Path("speech.png").read_bytes().startswith(PNG)


def test_show_never_overwrites_without_force(run: Run, speech: Path, model: Path) -> None:
    Path("picture.png").write_bytes(b"precious")
    assert run("show", "speech.wav", "-o", "picture.png", "-m", model).code == 2
    assert Path("picture.png").read_bytes() == b"precious"


def test_show_can_draw_a_part(run: Run, tmp_path: Path, model: Path) -> None:
    write_audio(tmp_path / "long.wav", sweep(3.0), 16_000)
    assert "0.50 of 3.00 s" in run("show", "long.wav", "-m", model, "--start", 1, "--seconds", 0.5).stderr
    assert "offset" in run("show", "long.wav", "-m", model, "--start", 4, "--force").stderr


def test_show_warns_of_a_file_that_breaks_off(run: Run, tmp_path: Path, model: Path) -> None:
    write_audio(tmp_path / "a.wav", sweep(2.0), 16_000)
    assert "warning" not in run("show", "a.wav", "-m", model, "--start", 1).stderr
    Path("cut.wav").write_bytes(Path("a.wav").read_bytes()[: 44 + 2 * 16_000])
    assert "warning: the file breaks off: 1.00 s of 2.00 s are there" in run("show", "cut.wav", "-m", model).stderr


def test_without_matplotlib_the_extra_is_named(
    run: Run, speech: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("show", "speech.wav", "-m", model)
    assert result.code == 2
    assert "dtm-codec[plot]" in result.stderr


@pytest.mark.parametrize(("num_samples", "image_format"), [(1, "png"), (161, "svg"), (4_000, "pdf")])
def test_any_length_can_be_drawn(num_samples: int, image_format: str) -> None:
    steps = -(-num_samples // 160)
    silence = np.zeros(num_samples, np.float32)
    mask = np.arange(steps) % 3 == 0
    picture = Picture("silence", silence, silence, 16_000, mask, 100.0, np.zeros(steps), 0.5)
    assert len(render(picture, image_format)) > 1_000


def test_a_tiny_tau_and_a_name_with_dollars_can_be_drawn() -> None:
    audio = np.zeros(16_000, np.float32)
    picture = Picture("a$b^$.wav", audio, audio, 16_000, np.ones(100, bool), 100.0, np.linspace(0, 5, 100), 1e-9)
    assert len(render(picture)) > 1_000


def test_the_local_token_rate_is_the_rate_where_it_is_constant() -> None:
    np.testing.assert_allclose(local_token_rate(np.ones(300, bool), 100.0), 100.0)
    np.testing.assert_allclose(local_token_rate(np.arange(300) % 2 == 0, 100.0), 50.0, rtol=0.1)


def test_the_local_token_rate_follows_the_mask() -> None:
    mask = np.concatenate([np.ones(200, bool), np.arange(200) % 10 == 0])
    rate = local_token_rate(mask, 100.0)
    assert rate[50] > 99
    assert rate[350] < 15
    assert rate.shape == mask.shape
