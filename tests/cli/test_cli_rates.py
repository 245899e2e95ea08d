"""Rates at which a model was not trained are told, by every command that can be asked for one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli_support import Run, sweep

from dtm_codec import DTMCodec, preset
from dtm_codec.speech.audio import write_audio
from dtm_codec.speech.pipes import pcm_bytes, wav_header

WARNING = "bps; 's-vfr-50' was trained at 500 ... 1000 bps"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can stream, and says at which rates it was trained."""
    folder = tmp_path_factory.mktemp("known")
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    ahead = {"enc1_lookahead": 1, "enc2_lookahead": 0, "dec1_lookahead": 0, "dec2_lookahead": 1}
    torch.manual_seed(0)
    codec = DTMCodec(replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **sizes, **ahead))
    codec.trained_bitrates = (500, 1000)
    codec.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("rate", "warned"),
    [
        (("--bitrate", 300), "300 "),
        (("--bitrate", 800), None),
        (("--token-rate", 90), "1360 "),
        (("--token-rate", 40), None),
        (("--tau", 1000), "1"),  # one token, and a bit a step
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("command", ["encode", "show", "tokenize", "stream encode", "thin"])
def test_a_rate_outside_of_training_is_warned_about(
    run: Run, speech: Path, known: Path, command: str, rate: tuple[str, float], warned: str | None
) -> None:
    words: dict[str, tuple[object, ...]] = {
        "encode": ("encode", "speech.wav"),
        "show": ("show", "speech.wav"),
        "tokenize": ("tokenize", "corpus", "-o", "out", "--workers", 1),
        "stream encode": ("stream", "encode"),
        "thin": ("thin", "full.dtm"),
    }
    Path("corpus").mkdir()
    write_audio("corpus/a.wav", sweep(1.0), 16_000)
    if command == "thin":
        assert run("encode", "speech.wav", "-m", known, "--token-rate", 99, "-o", "full.dtm").code == 0
        if rate[0] == "--tau":  # a file has no path to measure tau on
            assert run(*words[command], "-m", known, *rate).code == 2
            return
    sound = wav_header(16_000) + pcm_bytes(sweep(1.0))
    result = run(*words[command], "-m", known, *rate, stdin=sound)
    assert result.code == 0, result.stderr
    if warned is None:
        assert "trained at" not in result.stderr
    else:
        assert f"warning: {warned}" in result.stderr
        assert result.stderr.count(WARNING) == 1


def test_a_rate_that_a_stream_refuses_is_one_line(run: Run, known: Path) -> None:
    result = run("stream", "encode", "-m", known, "-b", 8000, stdin=wav_header(16_000) + pcm_bytes(sweep(0.1)))
    assert (result.code, result.stdout) == (2, b"")
    assert result.stderr.startswith("dtm-codec: 8000 bps")
    assert result.stderr.count("\n") == 1


def test_without_a_known_range_or_a_rate_nothing_is_said(run: Run, speech: Path, model: Path, known: Path) -> None:
    for words in (("-m", model, "--bitrate", 300), ("-m", known)):
        assert "trained at" not in run("encode", "speech.wav", *words, "--force").stderr
    Path("silence").mkdir()
    write_audio("silence/a.wav", 0 * sweep(1.0), 16_000)
    assert "trained at" not in run("encode", "silence", "-m", known, "--bitrate", 800).stderr
