import json

import pytest
from corpus_helpers import recording

from dtm_codec.cli import main
from dtm_codec.speech.audio import read_audio

pytestmark = pytest.mark.usefixtures("inline")


def run(*words):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def test_there_and_back(manifest, tmp_path, tiny_model, speech, capsys):
    (manifest.parent / "bad.wav").write_bytes(b"nothing")
    assert run("tokenize", manifest.parent, "-o", tmp_path / "out", "-m", tiny_model, "--bitrate", 600) == 0
    printed = capsys.readouterr().out
    assert "11 utterances" in printed
    assert " content + 100." in printed
    assert "hours per hour" in printed
    assert "per core" in printed
    assert "1 failed, listed in metadata.json, such as bad.wav: cannot read" in printed
    assert run("detokenize", tmp_path / "out", "-o", tmp_path / "audio") == 0
    assert "11 utterances" in capsys.readouterr().out
    audio, sample_rate = read_audio(tmp_path / "audio" / "0" / "utt00.wav")
    assert (audio.size, sample_rate) == (recording(0, 0.1).size, 16_000)


def test_a_finished_corpus_says_so_without_a_speed(manifest, tmp_path, tiny_model, capsys):
    words = ("tokenize", manifest, "-o", tmp_path / "out", "-m", tiny_model)
    assert run(*words) == 0
    capsys.readouterr()
    assert run(*words) == 0
    assert "this run" not in capsys.readouterr().out


def test_a_corpus_of_failures_alone_is_a_failure(tmp_path, tiny_model, capsys):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.wav").write_bytes(b"no audio")
    assert run("tokenize", tmp_path / "corpus", "-o", tmp_path / "out", "-m", tiny_model) == 1
    assert "1 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("tokenize", "nowhere", "-o", "out"),
        ("tokenize", ".", "-o", "out", "--bitrate", "600", "--tau", "1"),
        ("tokenize", ".", "-o", "out", "--workers", "0"),
        ("detokenize", "nowhere", "-o", "out"),
    ],
)
def test_mistakes_are_one_line(words, tmp_path, monkeypatch, tiny_model, capsys):
    monkeypatch.chdir(tmp_path)
    model = ("-m", str(tiny_model)) if words[0] == "tokenize" else ()
    assert run(*words, *model) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "key", "expected"),
    [
        (("--token-rate", "25"), "token_rate", 25),
        (("-b", "0.6k"), "total_bps", 600),
        (("--selector", "stride"), "position_bps", 0),
    ],
)
def test_any_rate_and_selector_can_be_asked_for(manifest, tmp_path, tiny_model, words, key, expected):
    command = ("tokenize", manifest, "-o", tmp_path / "out", "-m", tiny_model, "--shard-size", 16)
    assert run(*command, *words) == 0
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert metadata["rates"][key] == pytest.approx(expected, rel=0.05)
    assert metadata["selector"] == (words[1] if words[0] == "--selector" else "ple")
    assert metadata["tau"] is None
    assert run("detokenize", tmp_path / "out", "-o", tmp_path / "audio", "--device", "cpu") == 0
    assert run(*command) == 2  # the other settings of the first run
