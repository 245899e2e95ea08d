import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from web_support import SYSTEMS, make_prepared

from dtm_codec.errors import AudioError, ConfigError, DataError
from dtm_codec.speech.audio import read_audio, write_audio
from dtm_codec.web.listening import webmushra
from dtm_codec.web.listening.definition import load_definition
from dtm_codec.web.listening.prepared import load_test, prepare
from dtm_codec.web.listening.stimuli import loudness

DEFINITION = """
title: Two folders
reference: original
trials_per_listener: 1
systems:
  same: folder:original
  late: folder:late
"""


@pytest.fixture
def folders(tmp_path: Path, speech) -> Path:
    for name in ("original", "late"):
        (tmp_path / name).mkdir()
    for stem, audio in (("a", speech[:20_000]), ("b", speech[10_000:40_000])):
        write_audio(tmp_path / "original" / f"{stem}.wav", audio, 16_000)
        late = np.concatenate([np.zeros(400, np.float32), 0.2 * audio])
        write_audio(tmp_path / "late" / f"{stem}.flac", late, 16_000)
    (tmp_path / "test.yaml").write_text(DEFINITION)
    return tmp_path


def no_systems(source: str):
    raise AssertionError(f"{source} was to be run")


def test_folders_become_stimuli_of_one_length_one_instant_one_loudness(folders: Path):
    test = prepare(load_definition(folders / "test.yaml"), folders / "out", no_systems)
    assert test == load_test(folders / "out")
    assert (test.training, test.utterances) == ("a", ("b",))
    assert test.systems == ("reference", "anchor", "same", "late")
    paths = [test.audio_path(folders / "out", "b", system) for system in test.systems]
    stimuli = [read_audio(path)[0] for path in paths]
    assert {audio.size for audio in stimuli} == {30_000}
    assert len({path.stat().st_size for path in paths}) == 1, "sizes tell nothing of the system"
    assert [loudness(audio, 16_000) for audio in stimuli] == pytest.approx([-23] * 4, abs=0.2)
    reference, _, same, late = stimuli
    assert np.array_equal(reference, same)
    assert late == pytest.approx(reference, abs=2e-3)


def test_systems_are_run_on_what_is_heard(tmp_path: Path, speech):
    heard = []
    (tmp_path / "original").mkdir()
    for stem in "ab":
        write_audio(tmp_path / "original" / f"{stem}.wav", np.tile(speech, 3), 16_000)
    (tmp_path / "test.yaml").write_text("reference: original\nmax_seconds: 2\nsystems: {half: 'mine:8k?x=1'}\n")

    def systems(source: str):
        assert source == "mine:8k?x=1"

        def run(audio, rate):
            heard.append((audio.size, rate))
            return audio[::2], rate // 2

        return run

    test = prepare(load_definition(tmp_path / "test.yaml"), tmp_path / "out", systems)
    assert heard == [(32_000, 16_000)] * 2
    audio, rate = read_audio(test.audio_path(tmp_path / "out", "b", "half"))
    assert (audio.size, rate) == (32_000, 16_000)


def test_a_prepared_test_is_never_overwritten(folders: Path):
    definition = load_definition(folders / "test.yaml")
    prepare(definition, folders / "out", no_systems)
    with pytest.raises(ConfigError, match="is not empty"):
        prepare(definition, folders / "out", no_systems)


def test_a_missing_file_is_named(folders: Path):
    (folders / "late" / "b.flac").unlink()
    with pytest.raises(AudioError, match="late has no file for utterance 'b'"):
        prepare(load_definition(folders / "test.yaml"), folders / "out", no_systems)
    with pytest.raises(ConfigError, match="no prepared listening test"):
        load_test(folders / "out")


def test_after_a_failure_it_can_be_tried_again(folders: Path, speech):
    write_audio(folders / "original" / "a.wav", np.zeros_like(speech), 16_000)  # silence has no loudness to match
    definition = load_definition(folders / "test.yaml")
    with pytest.raises(AudioError):
        prepare(definition, folders / "out", no_systems)
    write_audio(folders / "original" / "a.wav", speech, 16_000)
    prepare(definition, folders / "out", no_systems)
    assert load_test(folders / "out").title == definition.title


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("systems: {a: folder:x}", "'reference' is missing"),
        ("reference: original", "'systems' is missing"),
        ("reference: original\nsystems: {}", "systems = {}; allowed: one system or more"),
        ("reference: original\nsystems: [a]", "systems = \\['a'\\]; expected a mapping"),
        ("reference: original\nsystems: {anchor: folder:x}", "a name in systems = 'anchor'; allowed"),
        ("reference: original\nsystems: {a: folder:nowhere}", "nowhere is no folder"),
        ("reference: nowhere\nsystems: {a: folder:late}", "nowhere is no folder"),
        ("reference: .\nsystems: {a: folder:late}", "has no audio files"),
        ("reference: original\nsystems: {a: folder:late}\nseed: x", "seed = 'x'; expected int"),
        ("reference: original\nsystems: {a: folder:late}\nseed: true", "seed = True; expected int"),
        ("reference: original\nsystems: {a: folder:late}\nspeed: 1", "unknown key 'speed'"),
        ("reference: original\nsystems: {a: folder:late}\ntraining: z", "training = 'z'; allowed: one of a, b"),
        (
            "reference: original\nsystems: {a: folder:late}\ntrials_per_listener: 0",
            "trials_per_listener = 0; allowed: 1",
        ),
        ("reference: original\nsystems: {a: folder:late}\nmax_seconds: 0.1", "max_seconds = 0.1; allowed: 0.5"),
        ("- a", "expected a mapping"),
        ("{", "cannot be read as YAML"),
    ],
)
def test_a_wrong_definition_says_what_is_wrong(folders: Path, text: str, message: str):
    (folders / "test.yaml").write_text(text)
    with pytest.raises((ConfigError, DataError), match=message) as caught:
        prepare(load_definition(folders / "test.yaml"), folders / "out", no_systems)
    assert "\n" not in str(caught.value)


def test_a_test_with_a_lost_stimulus_is_not_served(folders: Path):
    test = prepare(load_definition(folders / "test.yaml"), folders / "out", no_systems)
    test.audio_path(folders / "out", "b", "late").unlink()
    with pytest.raises(ConfigError, match="no stimulus of utterance 'b' by 'late'"):
        load_test(folders / "out")
    (folders / "out" / "test.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ConfigError, match="format = 99; allowed: 1"):
        load_test(folders / "out")


def test_the_webmushra_export_is_whole(tmp_path: Path, speech):
    test = make_prepared(tmp_path, speech)
    out = tmp_path / "webmushra"
    config = yaml.safe_load(webmushra.export(test, tmp_path / "test", out).read_text())
    assert config["testname"] == "A &lt;b&gt;test&lt;/b&gt;"
    welcome, volume, training, trials, finish = config["pages"]
    assert [page["type"] for page in (welcome, volume, training, finish)] == ["generic", "volume", "mushra", "finish"]
    assert trials[0] == "random"
    assert len(trials) == 1 + len(test.utterances)
    for page in [training, *trials[1:]]:
        assert len(page["stimuli"]) == 1 + len(SYSTEMS), (
            "the anchor and the systems; the reference is webMUSHRA's to hide"
        )
        assert all(key.replace("_", "").replace("-", "").isalnum() for key in page["stimuli"])
        for path in [page["reference"], *page["stimuli"].values()]:
            assert read_audio(out / path)[0].size > 0
    with pytest.raises(ConfigError, match="exists"):
        webmushra.export(test, tmp_path / "test", out)
