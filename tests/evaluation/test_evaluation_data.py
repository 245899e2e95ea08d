"""Test sets and ratings as users have them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dtm_codec.errors import ConfigError, DTMCodecError
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.listening import listening_block
from dtm_codec.ratings import read_ratings
from dtm_codec.specs import Spec
from dtm_codec.speech.audio import write_audio


def test_manifest_fields_are_read_and_conditions_met(manifest: Path) -> None:
    rows = read_data(manifest)
    assert [u.id for u in rows] == ["0.wav", "1.wav", "2.wav"]
    assert rows[0].labels == {"digit": "0"}
    assert [u.language for u in read_data(manifest, ["lang!=en"])] == ["de"]
    assert [u.id for u in read_data(manifest, ["lang=en", "digit=1"])] == ["1.wav"]


def test_a_key_changes_with_what_is_judged(own_manifest: Path) -> None:
    keys = {u.key for u in read_data(own_manifest)}
    assert len(keys) == 3
    assert keys == {u.key for u in read_data(own_manifest)}
    changed = own_manifest.with_name("changed.jsonl")
    lines = [json.loads(line) for line in own_manifest.read_text().splitlines()]
    changed.write_text("\n".join(json.dumps({**line, "text": "another text"}) for line in lines))
    assert keys.isdisjoint(u.key for u in read_data(changed))
    sound = own_manifest.with_name("0.wav")
    sound.write_bytes(sound.read_bytes()[:-1] + b"\x55")
    assert len(keys & {u.key for u in read_data(own_manifest)}) == 2, "other sound of the same name and size"


def test_what_is_not_known_is_not_another_language(tmp_path: Path) -> None:
    write_audio(tmp_path / "a.wav", np.zeros(100, np.float32), 16_000)
    with pytest.raises(DTMCodecError, match="lang!=en"):
        read_data(tmp_path, ["lang!=en"])


def test_numbers_in_a_manifest_are_read_as_text(tmp_path: Path) -> None:
    write_audio(tmp_path / "a.wav", np.zeros(100, np.float32), 16_000)
    (tmp_path / "m.jsonl").write_text('{"audio_filepath": "a.wav", "speaker": 1089, "set": 3, "text": 42}')
    (found,) = read_data(tmp_path / "m.jsonl", ["speaker=1089", "set=3"])
    assert (found.speaker, found.set, found.text) == ("1089", "3", "42")


def test_one_recording_is_a_test_set(tmp_path: Path) -> None:
    write_audio(tmp_path / "a.wav", np.zeros(100, np.float32), 16_000)
    assert [u.id for u in read_data(tmp_path / "a.wav")] == ["a.wav"]
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    with pytest.raises(DTMCodecError, match="line 1"):
        read_data(tmp_path / "binary.jsonl")


def test_folders_of_librispeech_mls_and_plain_audio(tmp_path: Path) -> None:
    for name in ("1089/134686/1089-134686-0000.flac", "mls_german/test/audio/7_8_9.wav", "plain/a.wav", "plain/b.wav"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_audio(tmp_path / name, np.zeros(100, np.float32), 16_000)
    (tmp_path / "1089/134686/1089-134686.trans.txt").write_text("1089-134686-0000 HE HOPED\n")
    (tmp_path / "mls_german/test/transcripts.txt").write_text("7_8_9\tguten tag\n")
    (tmp_path / "plain/a.txt").write_text("beside\n")
    found = {u.id: (u.text, u.language) for u in read_data(tmp_path)}
    assert found == {
        "1089/134686/1089-134686-0000.flac": ("HE HOPED", "en"),
        "mls_german/test/audio/7_8_9.wav": ("guten tag", "de"),
        "plain/a.wav": ("beside", None),
        "plain/b.wav": (None, None),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "line 1"), ("[1]", "line 1"), ('{"audio_filepath": "gone.wav"}', "gone.wav"), ("", "no utt")],
)
def test_a_bad_manifest_is_one_clear_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(text)
    with pytest.raises(DTMCodecError, match=message):
        read_data(tmp_path / "m.jsonl")


def test_nothing_to_judge_is_said(manifest: Path, tmp_path: Path) -> None:
    with pytest.raises(DTMCodecError, match="no speech at"):
        read_data(tmp_path / "gone")
    with pytest.raises(DTMCodecError, match="lang=xx"):
        read_data(manifest, ["lang=xx"])
    with pytest.raises(DTMCodecError, match="field=value"):
        read_data(manifest, ["lang"])


def test_ratings_become_the_papers_table(tmp_path: Path) -> None:
    rows = [
        (f"l{i}", f"t{j}", system, base + i)
        for i in range(4)
        for j in range(2)
        for system, base in (("A", 70), ("B", 50))
    ]
    (tmp_path / "r.csv").write_text("listener,trial,system,rating\n" + "\n".join(",".join(map(str, r)) for r in rows))
    names = ("listener", "trial", "system", "rating")
    (tmp_path / "r.json").write_text(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
    block = listening_block(read_ratings(tmp_path / "r.csv"))
    assert [row[0].text for row in block.groups[0].rows] == ["A", "B"]
    assert block.groups[0].rows[0][2].text == "71.50"
    assert "4 listeners, 2 trials, mean and 95 % bootstrap interval over listeners" in str(block.columns[2].judge)
    assert block.groups[0].rows[0][2].detail == "70.5–72.5"
    assert read_ratings(tmp_path / "r.json") == read_ratings(tmp_path / "r.csv")


@pytest.mark.parametrize("text", ["", "listener,trial\n1,2\n", "listener,trial,system,rating\na,b,c,high\n"])
def test_other_files_are_no_ratings(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(DTMCodecError, match="ratings"):
        read_ratings(tmp_path / "r.csv")


def test_names_have_a_kind_an_argument_and_options() -> None:
    assert Spec.parse("pesq") == Spec("pesq")
    assert Spec.parse("dtm:random:s-vfr-50?bitrate=800&selector=ple") == Spec(
        "dtm", "random:s-vfr-50", {"bitrate": "800", "selector": "ple"}
    )
    with pytest.raises(ConfigError, match="the option 'bitrate' is there twice"):
        Spec.parse("dtm:small?bitrate=400&bitrate=800")
    with_a_path = Spec.parse("dtm:small?calibrate=a+b %20.jsonl&bitrate=700")
    assert with_a_path.options == {"calibrate": "a+b %20.jsonl", "bitrate": "700"}
    assert with_a_path.text == "dtm:small?calibrate=a+b %20.jsonl&bitrate=700"
