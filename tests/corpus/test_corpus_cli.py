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
