"""A manifest means the same audio to every room: with `offset` a segment, without it the whole file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from corpus_helpers import recording

from dtm_codec import DTMCodec
from dtm_codec.corpus import tokenize
from dtm_codec.evaluation import systems
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.runner import evaluate
from dtm_codec.evaluation.systems import plain
from dtm_codec.training.data import InMemory, OnDisk, find_utterances
from dtm_codec.web.listening.definition import load_definition
from dtm_codec.web.listening.prepared import prepare

RATE = 16_000
LINES: list[dict[str, Any]] = [
    {"audio_filepath": "long.wav", "offset": 0, "duration": 1.0},
    {"audio_filepath": "long.wav", "offset": 1.25, "duration": 0.75},
    {"audio_filepath": "long.wav", "offset": 3.5, "id": "to-the-end"},
    {"audio_filepath": "long.wav", "offset": 3.6, "duration": 9.0, "id": "no further than the file"},
    {"audio_filepath": "other.wav", "duration": 0.6},  # of a file of 1.5 s: it only informs
    {"audio_filepath": "other.wav", "id": "without a duration"},
]
Heard = dict[str, npt.NDArray[np.float32]]


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "long.wav", recording(2, 4.5), RATE, subtype="PCM_16")
    soundfile.write(tmp_path / "other.wav", recording(5, 1.5), RATE, subtype="PCM_16")
    (tmp_path / "segments.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return tmp_path / "segments.jsonl"


def expected(manifest: Path) -> Heard:
    """By soundfile alone."""
    heard = {}
    for line in LINES:
        name, offset = line["audio_filepath"], line.get("offset")
        frames = round(line["duration"] * RATE) if offset is not None and "duration" in line else -1
        start = round((offset or 0) * RATE)
        samples, _ = soundfile.read(manifest.parent / name, frames=frames, start=start, dtype="float32")
        heard[line.get("id", name if offset is None else f"{name}@{offset}")] = samples
    return heard


def trained_on(manifest: Path, kind: Callable[..., InMemory | OnDisk]) -> Heard:
    recordings = kind(find_utterances(manifest), RATE)
    return {name: recordings.read(i, 0, 10 * RATE) for i, name in enumerate(recordings.names)}


def evaluated(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard = []

    class Listening(plain.Identity):
        def encode(self, audio):
            heard.append(audio)
            return super().encode(audio)

    monkeypatch.setattr(plain, "Listening", Listening, raising=False)
    monkeypatch.setitem(systems._SYSTEMS, "listening", "plain:Listening")
    utterances = read_data(manifest)
    evaluate(["listening"], ["si-sdr"], utterances, manifest.parent / "run")
    return dict(zip((u.id for u in utterances), heard, strict=True))


def tokenized(manifest: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard, original = [], DTMCodec.encode

    def encode(self, audio, *arguments, **options):
        heard.extend(audio if isinstance(audio, list) else [])
        return original(self, audio, *arguments, **options)

    monkeypatch.setattr(DTMCodec, "encode", encode)
    tokenize(manifest, manifest.parent / "tokens", model=model)
    return dict(zip((u.id for u in read_data(manifest)), heard, strict=True))


def listened_to(manifest: Path) -> Heard:
    heard = []

    def system(audio, rate):
        heard.append(audio)
        return audio, rate

    definition = manifest.with_name("test.yaml")
    definition.write_text(f"reference: {manifest.name}\nsystems: {{one: any}}\nmax_seconds: 20\n")
    test = prepare(load_definition(definition), manifest.parent / "test", lambda source: system)
    return dict(zip((*test.utterances, test.training), heard, strict=True))


@pytest.mark.usefixtures("inline")
def test_every_room_hears_the_same_samples(segments: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = expected(segments)
    assert [samples.size for samples in truth.values()] == [16_000, 12_000, 16_000, 14_400, 24_000, 24_000]
    rooms = {
        "training in memory": trained_on(segments, InMemory),
        "evaluation": evaluated(segments, monkeypatch),
        "corpus": tokenized(segments, tiny_model, monkeypatch),
        "listening": listened_to(segments),
        "training from disk": trained_on(segments, OnDisk),
    }
    for room, heard in rooms.items():
        names = {"other": "other.wav"} if room == "listening" else {}  # its trials are named without suffix
        assert {names.get(name, name) for name in heard} == set(truth), room
        for name, samples in heard.items():
            assert np.array_equal(samples, truth[names.get(name, name)]), (room, name)


def test_crops_from_disk_stay_inside_their_segment(segments: Path) -> None:
    crops = OnDisk(find_utterances(segments), RATE)
    whole = expected(segments)["long.wav@1.25"]
    index = crops.names.index("long.wav@1.25")
    assert crops.lengths[index] == whole.size
    assert np.array_equal(crops.read(index, 2_000, 4_000), whole[2_000:6_000])
    assert np.array_equal(crops.read(index, 10_000, 4_000), whole[10_000:])


def test_what_is_kept_of_a_segment_is_not_taken_for_another(segments: Path) -> None:
    whole, *rest = read_data(segments)
    assert len({whole.key, *(u.key for u in rest)}) == len(LINES)
    moved = [{**line, "offset": 0.5, "id": "same"} for line in LINES[:1]]
    other = [{**line, "offset": 0.5, "duration": 0.5, "id": "same"} for line in LINES[:1]]
    keys = []
    for lines in (moved, other, moved):
        segments.write_text("".join(json.dumps(line) + "\n" for line in lines))
        keys.append(read_data(segments)[0].key)
    assert keys[0] == keys[2] != keys[1]
