"""Standard layouts become manifests; manifests become shards; shards become the batches that files would."""

from __future__ import annotations

import json
import tarfile
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile

from dtm_codec.errors import DataError
from dtm_codec.speech.tars import read_tar
from dtm_codec.speech.utterance import Utterance
from dtm_codec.training.config import DataConfig
from dtm_codec.training.data import batches, find_utterances
from dtm_codec.training.prepare import prepare, write_shards
from dtm_codec.training.tar_shards import _crops

CONFIG = DataConfig(crop_seconds=0.25, batch_size=4, workers=1)


def noise(path: Path, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = 0.1 * np.random.default_rng(path.name.encode()[0]).standard_normal(int(16_000 * seconds))
    soundfile.write(path, samples, 16_000)


def read(manifest: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in manifest.read_text().splitlines()]


def test_librispeech(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chapter = tmp_path / "LibriSpeech" / "dev-clean" / "84" / "121123"
    noise(chapter / "84-121123-0000.flac", 1.0)
    noise(chapter / "84-121123-0001.flac", 0.5)
    transcript = "84-121123-0000 GO ON\n84-121123-0001 I DID\n84-121123-0002 THE FILE IS MISSING\n"
    (chapter / "84-121123.trans.txt").write_text(transcript)
    manifest = tmp_path / "dev.jsonl"
    told: list[tuple[int, int]] = []
    tell = lambda done, total: told.append((done, total))  # noqa: E731
    assert prepare("librispeech", [tmp_path / "LibriSpeech"], manifest, on_progress=tell) == 2
    assert told[-1] == (len(told), len(told))
    expected = "LibriSpeech/dev-clean/84/121123/84-121123-0000.flac"
    assert read(manifest)[0] == {
        "audio_filepath": expected,
        "duration": 1.0,
        "text": "go on",
        "speaker": "84",
        "lang": "en",
    }
    assert "84-121123-0002.flac" in caplog.text
    assert [u.duration for u in find_utterances(manifest)] == [1.0, 0.5]


def test_subsets_are_taken_and_no_others(tmp_path: Path) -> None:
    for subset in ("train-clean-100", "train-clean-360", "dev-clean"):
        chapter = tmp_path / subset / "1" / "2"
        noise(chapter / "1-2-0.flac", 0.5)
        (chapter / "1-2.trans.txt").write_text("1-2-0 GO ON\n")
    assert prepare("librispeech", sorted(tmp_path.glob("train-*")), tmp_path / "train.jsonl") == 2
    assert not any("dev-clean" in str(entry) for entry in read(tmp_path / "train.jsonl"))


def test_mls(tmp_path: Path) -> None:
    split = tmp_path / "mls_polish" / "test"
    noise(split / "audio" / "6892" / "10049" / "6892_10049_000000.flac", 1.0)
    (split / "transcripts.txt").write_text("6892_10049_000000\tmoże być\n", encoding="utf-8")
    (tmp_path / "manifests").mkdir()
    manifest = tmp_path / "manifests" / "polish.jsonl"
    assert prepare("mls", [tmp_path / "mls_polish"], manifest) == 1
    (entry,) = read(manifest)
    assert (entry["text"], entry["speaker"], entry["lang"]) == ("może być", "6892", "pl")
    assert find_utterances(manifest)[0].audio.exists()


def test_wrong_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no librispeech recordings"):
        prepare("librispeech", [tmp_path], tmp_path / "out.jsonl")
    with pytest.raises(DataError, match="no such folder"):
        prepare("mls", [tmp_path / "missing"], tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for name in "abcdef":
        noise(tmp_path / f"{name}.wav", 1.0)
    entries = [{"audio_filepath": f"{name}.wav", "duration": 1.0} for name in "abcdef"]
    manifest = tmp_path / "train.jsonl"
    manifest.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    told: list[int] = []
    tell = lambda done, total: told.append(total - done)  # noqa: E731
    assert write_shards(manifest, tmp_path / "shards", per_shard=2, on_progress=tell) == 3
    assert told == [6, 5, 4, 3, 2, 1]
    return str(tmp_path / "shards" / "{000000..000002}.tar")


def test_shards_stream_crops_of_every_recording(shards: str) -> None:
    options = {"sample_rate": 16_000, "crop_samples": 4000, "seed": 0, "rank": 0}
    stream = list(islice(batches(shards, CONFIG, step=0, world=1, **options), 30))
    assert all(batch.audio.shape == (4, 4000) and batch.audio.abs().max() > 0.1 for batch in stream)
    recordings = {item.partition("@")[0] for batch in stream for item in batch.items}
    assert len(recordings) == 6


def test_shards_of_another_size_do_not_come_beside_old_ones(shards: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"shards holds \.tar files already; allowed: a folder without any"):
        write_shards(tmp_path / "train.jsonl", Path(shards).parent, per_shard=6)
    assert len(list(Path(shards).parent.iterdir())) == 3


def test_a_segment_is_packed_alone_and_with_what_is_known_of_it(tmp_path: Path) -> None:
    noise(tmp_path / "long.wav", 3.0)
    noise(tmp_path / "short.wav", 0.5)
    lines = [
        {
            "audio_filepath": "long.wav",
            "offset": 1.0,
            "duration": 0.5,
            "text": "go on",
            "speaker": "a",
            "mood": "calm",
        },
        {"audio_filepath": "short.wav", "id": "short"},
        {"audio_filepath": "long.wav", "offset": 3.0, "id": "too late"},
    ]
    manifest = tmp_path / "m.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_shards(manifest, tmp_path / "shards")
    shard = tmp_path / "shards" / "000000.tar"
    with tarfile.open(shard) as tar:
        names = tar.getnames()
        records = [json.loads(tar.extractfile(name).read()) for name in names if name.endswith(".json")]
    assert sorted(names) == ["000000000.flac", "000000000.json", "000000001.json", "000000001.wav"]
    expected = {"id": "long.wav@1.0", "duration": 0.5, "text": "go on", "speaker": "a", "mood": "calm"}
    assert records == [expected, {"id": "short"}]
    segment, short = read_tar(shard, "s")
    assert np.array_equal(segment.read()[0], Utterance("", tmp_path / "long.wav", 1.0, 0.5).read()[0])
    assert short.audio == (tmp_path / "short.wav").read_bytes()
    assert (segment.id, segment.text, segment.speaker) == ("s/000000000", "go on", "a")


def test_a_shard_that_breaks_off_gives_what_it_has(shards: str, caplog: pytest.LogCaptureFixture) -> None:
    path = Path(shards.replace("{000000..000002}", "000000"))
    path.write_bytes(path.read_bytes()[:40_000])  # the first of two recordings, and a part of the second
    with path.open("rb") as stream:
        crops = _crops([{"url": "a.tar", "stream": stream}], CONFIG, 16_000, 4000, (0,))
        assert {item.partition("@")[0] for _, item in crops} == {"a.tar/000000000"}
    assert "skipped: a.tar: the tar cannot be read, or not to its end" in caplog.text


def test_processes_read_different_shards(shards: str) -> None:
    options = {"sample_rate": 16_000, "crop_samples": 4000, "seed": 0, "step": 0}
    seen = []
    for rank in range(2):
        stream = islice(batches(shards, CONFIG, rank=rank, world=2, **options), 8)
        seen.append({item.partition("@")[0] for batch in stream for item in batch.items})
    assert not seen[0] & seen[1]
    with pytest.raises(DataError, match=r"no such shard: .*missing-0\.tar"):
        batches(shards.replace("{000000..000002}", "missing-{0..2}"), CONFIG, rank=0, world=1, **options)
    with pytest.raises(DataError, match="3 shards for 4 processes"):
        batches(shards, CONFIG, rank=0, world=4, **options)
