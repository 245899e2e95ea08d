"""One utterance: which audio it means, and what it is called in the manifests people have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from dtm_codec.errors import AudioError, DataError
from dtm_codec.speech.manifest import read_manifest
from dtm_codec.speech.utterance import Utterance


def parse(folder: Path, **record: Any) -> Utterance:
    (folder / "m.jsonl").write_text(json.dumps(record) + "\n")
    (utterance,) = read_manifest(folder / "m.jsonl")
    return utterance


@pytest.fixture
def ramp(tmp_path: Path) -> Path:
    """One second in which every sample says where it is."""
    soundfile.write(tmp_path / "a.wav", np.arange(8_000, dtype=np.int16), 8_000)
    return tmp_path / "a.wav"


@pytest.mark.parametrize(
    ("offset", "duration", "first", "count"),
    [
        (None, None, 0, 8_000),
        (None, 0.25, 0, 8_000),
        (0, None, 0, 8_000),
        (0, 0.25, 0, 2_000),
        (0.5, None, 4_000, 4_000),
        (0.5, 0.25, 4_000, 2_000),
        (0.5, 3.0, 4_000, 4_000),
        (0.5, 0, 4_000, 1),
    ],
)
def test_offset_chooses_a_segment_and_duration_alone_only_informs(
    ramp: Path, offset: float | None, duration: float | None, first: int, count: int
) -> None:
    utterance = Utterance("a", ramp, offset, duration)
    samples, rate = utterance.read()
    assert (np.rint(samples * 32768) == np.arange(first, first + count)).all()
    assert (samples.size, rate) == (count, 8_000)
    assert utterance.seconds() == count / 8_000
    assert np.array_equal(utterance.read(start=count // 4, length=count)[0], samples[count // 4 :])
    assert np.array_equal(utterance.read(length=max(1, count // 2))[0], samples[: max(1, count // 2)])
    assert abs(utterance.read(16_000)[0].size - 2 * count) <= 1


def test_a_part_is_counted_at_the_rate_that_is_asked_for(ramp: Path) -> None:
    segment = Utterance("a", ramp, 0.25, 0.5)
    part, rate = segment.read(16_000, start=4_000, length=1_000)
    assert (part.size, rate) == (1_000, 16_000)
    np.testing.assert_allclose(part[100:900], segment.read(16_000)[0][4_100:4_900], atol=2e-3)


def test_a_segment_after_the_end_is_an_error_not_silence(ramp: Path) -> None:
    late = Utterance("late", ramp, 1.0, 0.5)
    with pytest.raises(AudioError, match="none from offset 8000 on"):
        late.read()
    with pytest.raises(AudioError, match=r"late: offset = 1\.0; allowed: less than the file's 1 s"):
        late.seconds()


def test_what_breaks_off_is_refused_where_the_whole_is_asked_for(ramp: Path) -> None:
    assert Utterance("a", ramp).read_whole(16_000)[0].size == 16_000
    ramp.write_bytes(ramp.read_bytes()[: 44 + 2 * 2_000])
    cut = Utterance("a", ramp)
    assert cut.seconds() == 0.25
    assert cut.read()[0].size == 2_000
    with pytest.raises(AudioError, match=r"the file breaks off: 0\.25 s of 1\.00 s are there"):
        cut.read_whole()
    with pytest.raises(AudioError, match=r"the file breaks off: 0\.15 s of 0\.60 s are there"):
        Utterance("a", ramp, 0.1, 0.6).read_whole(16_000)
    assert Utterance("a", ramp, 0.1, 0.1).read_whole()[0].size == 800  # all of the segment is there
    with pytest.raises(AudioError, match="none from offset 4000 on"):
        Utterance("a", ramp, 0.5).read_whole()


def test_audio_may_come_as_bytes_which_are_the_utterance_itself(ramp: Path) -> None:
    utterance = Utterance.from_record({"offset": 17.0, "text": "hello"}, ramp.read_bytes(), "a")
    assert utterance.read()[0].size == 8_000
    assert utterance.text == "hello"


@pytest.mark.parametrize("audio", ["audio_filepath", "audio", "path", "wav"])
@pytest.mark.parametrize(
    ("text", "speaker", "language", "name"),
    [("text", "speaker", "lang", "id"), ("sentence", "client_id", "language", "utterance_id")],
)
def test_usual_names_of_fields_are_known(
    tmp_path: Path, audio: str, text: str, speaker: str, language: str, name: str
) -> None:
    record = {audio: "a.wav", text: "hello", speaker: 7, language: "en", name: "u1", "emotion": "calm", "gone": None}
    found = parse(tmp_path, **record)
    assert found == Utterance("u1", tmp_path / "a.wav", None, None, "hello", "7", "en", None, {"emotion": "calm"})
    for key in (text, speaker, language, name, "emotion"):
        assert found.value(key) == str(record[key])
    assert found.value("gone") is None


def test_a_second_name_of_a_field_is_a_label(tmp_path: Path) -> None:
    found = parse(tmp_path, audio_filepath="a.wav", speaker="A", speaker_id="17")
    assert (found.speaker, found.value("speaker"), found.value("speaker_id")) == ("A", "A", "17")


def test_without_an_id_the_path_and_the_offset_name_it(tmp_path: Path) -> None:
    assert parse(tmp_path, audio_filepath="x/a.wav").id == "x/a.wav"
    assert parse(tmp_path, audio_filepath="x/a.wav", offset=1.5).id == "x/a.wav@1.5"


def test_a_duration_that_only_informs_may_be_anything(tmp_path: Path) -> None:
    for duration in ("3.2", -1, [3]):
        assert parse(tmp_path, audio_filepath="a.wav", duration=duration).duration is None
        with pytest.raises(DataError, match="offset = 0, duration = "):
            parse(tmp_path, audio_filepath="a.wav", offset=0, duration=duration)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "m.jsonl line 2 is not JSON"),
        ("[" * 100_000, "m.jsonl line 2 is not JSON"),
        ("7", "m.jsonl line 2 names no audio"),
        ('{"audio_filepath": 7}', "m.jsonl line 2 names no audio"),
        ('{"audio_filepath": "gone.wav"}', r"m.jsonl line 2: .*gone.wav is not there"),
        ('{"audio_filepath": "a.wav", "offset": true}', "m.jsonl line 2: offset = True"),
    ],
)
def test_a_bad_line_is_named_by_file_and_line(ramp: Path, line: str, message: str) -> None:
    manifest = ramp.with_name("m.jsonl")
    manifest.write_text(f'{{"audio_filepath": "a.wav"}}\n{line}\n')
    with pytest.raises(DataError, match=message) as caught:
        list(read_manifest(manifest, must_exist=True))
    assert "\n" not in str(caught.value)


def test_a_record_says_again_what_was_read(tmp_path: Path) -> None:
    record = {"duration": 2.0, "text": "hello", "speaker": "7", "lang": "en", "set": "mini", "emotion": "calm"}
    assert parse(tmp_path, audio_filepath="a.wav", **record).to_record() == record
    assert parse(tmp_path, audio_filepath="a.wav").to_record() == {}
