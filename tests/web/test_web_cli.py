from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner
from web_support import make_prepared

from dtm_codec.cli import app, main
from dtm_codec.cli.web import _demo
from dtm_codec.ratings.preferences import Choice
from dtm_codec.speech.audio import write_audio
from dtm_codec.web.listening.store import Store


@pytest.fixture
def originals(tmp_path: Path, speech) -> Path:
    (tmp_path / "original").mkdir()
    for stem in "ab":
        write_audio(tmp_path / "original" / f"{stem}.wav", speech[:16_000], 16_000)
    return tmp_path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_from_folders_and_systems_to_a_test_and_its_export(originals: Path):
    systems = "{copy: folder:original, telephone: 'lowpass:2000', mine: 'command:cp {in} {out}'}"
    (originals / "test.yaml").write_text(f"title: One\nreference: original\nsystems: {systems}\n")
    said = run("listening", "new", originals / "test.yaml", "-o", originals / "out")
    assert "1 trials of 5 stimuli, 1 a listener" in said
    run("listening", "export-webmushra", originals / "out", "-o", originals / "web")
    assert (originals / "web" / "configs" / "dtm-codec.yaml").is_file()


def test_results_are_printed_written_and_drawn(tmp_path: Path, speech):
    test = make_prepared(tmp_path, speech)
    store = Store(tmp_path / "test" / "ratings.sqlite")
    for first in (100, 100, 100, 80):  # the last one misses the hidden reference
        _, listener = store.add_listener("x")
        for utterance in test.utterances:
            for i, system in enumerate(test.systems):
                store.rate(listener, utterance, system, first - 10 * i)
    store.close()
    csv, picture = tmp_path / "ratings.csv", tmp_path / "plot.png"
    said = run("listening", "results", tmp_path / "test", "--csv", csv, "--plot", picture)
    for expected in ("100.00", "90.00", "60.00", "good <i>&", f"4 listeners, 1 left out: {listener.label}"):
        assert expected in said
    rows = np.genfromtxt(csv, delimiter=",", dtype=str)
    assert rows[0].tolist() == ["listener", "trial", "system", "rating"]
    assert len(rows) == 1 + 3 * 3 * 5
    assert picture.stat().st_size > 5000
    everyone = run("listening", "results", tmp_path / "test", "--csv", csv, "--no-screening")
    assert "95.00" in everyone
    assert len(np.genfromtxt(csv, delimiter=",", dtype=str)) == 1 + 4 * 3 * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["listening", "results", "nowhere"], "nowhere is no prepared listening test"),
        (["serve", "--listening", "nowhere"], "nowhere is no prepared listening test"),
        (["listening", "new", "nowhere.yaml", "-o", "out"], "nowhere.yaml: no such file"),
        (["serve", "--model", "no-such-model"], "no model 'no-such-model'"),
        (["listening", "results", "nowhere", "--plot", "ratings"], "--plot ratings; allowed: a name that ends in .png"),
    ],
)
def test_what_is_not_there_is_one_line(capsys, arguments: list[str], message: str):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_results_without_anyone_left_say_so_and_offer_all(tmp_path: Path, speech, capsys):
    make_prepared(tmp_path, speech)
    store = Store(tmp_path / "test" / "ratings.sqlite")
    for name in ("a", "b"):
        _, listener = store.add_listener(name)
        store.rate(listener, "utt1", "reference", 10)
    store.close()
    with pytest.raises(SystemExit) as end:
        main(["listening", "results", str(tmp_path / "test")])
    assert end.value.code == 1
    said = capsys.readouterr().out
    assert "All 2 listeners are left out" in said
    assert "--no-screening" in said
    assert "Pairwise" not in said


def test_preferences_are_printed_written_and_drawn(tmp_path: Path, speech):
    test = make_prepared(tmp_path, speech, method="ab", no_preference=True)
    store = Store(tmp_path / "test" / "ratings.sqlite")
    first, second = test.pairs[0]
    for number in range(4):
        _, listener = store.add_listener("x")
        for utterance in test.utterances:
            chosen = "" if utterance == test.utterances[0] else first if number else second
            store.choose(listener, Choice(listener.label, utterance, first, second, "", chosen))
    store.close()
    csv, picture = tmp_path / "choices.csv", tmp_path / "plot.svg"
    said = run("listening", "results", tmp_path / "test", "--csv", csv, "--plot", picture)
    for expected in ("6 of 8", "75%", "34.9% ... 96.8%", "0 of 0"):  # Clopper-Pearson, from a table
        assert expected in said
    rows = np.genfromtxt(csv, delimiter=",", dtype=str)
    assert rows[0].tolist() == ["listener", "trial", "first", "second", "x", "chosen"]
    assert len(rows) == 1 + 12
    assert picture.stat().st_size > 5000


def test_results_before_anyone_listened_say_so(tmp_path: Path, speech, capsys):
    make_prepared(tmp_path, speech)
    with pytest.raises(SystemExit):
        main(["listening", "results", str(tmp_path / "test")])
    assert "has no ratings yet" in capsys.readouterr().err
    assert not (tmp_path / "test" / "ratings.sqlite").exists()


def test_without_a_model_calls_have_the_live_one(monkeypatch: pytest.MonkeyPatch):
    demo = _demo(None, "cpu", None, 30)
    assert demo.codec.config.name == "small"
    assert demo.live.codec.config.name == "s-live"
    assert demo.describe()["live"]["obstacle"] is None
    monkeypatch.setattr("dtm_codec.cli.web.find_spec", lambda name: None)  # no torch: recordings alone
    assert "PyTorch" in _demo(None, "cpu", None, 30).describe()["live"]["obstacle"]


def test_a_model_that_is_named_takes_the_calls_too():
    assert _demo("small", "cpu", None, 30).live.codec.config.name == "small"
    assert _demo("small-live", "cpu", None, 30).live.codec.config.name == "s-live"
