"""Batches are a pure function of (seed, step, rank); bad files are skipped, short ones padded, none decoded whole."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from dtm_codec.errors import DataError
from dtm_codec.training.config import DataConfig
from dtm_codec.training.crops import with_gain
from dtm_codec.training.data import Crops, InMemory, OnDisk, batches, find_utterances

CONFIG = DataConfig(crop_seconds=0.25, batch_size=4, workers=0)
CROP = 4000


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three recordings of 1, 2 and 4 seconds, one of 0.1 s, and one that is no audio."""
    draw = np.random.default_rng(0)
    for index, seconds in enumerate((1.0, 2.0, 4.0, 0.1)):
        soundfile.write(tmp_path / f"{index}.wav", 0.3 * draw.standard_normal(int(16_000 * seconds)), 16_000)
    (tmp_path / "broken.wav").write_bytes(b"not audio")
    return tmp_path


def test_a_step_is_always_the_same_and_steps_differ(corpus: Path) -> None:
    recordings = InMemory(find_utterances(corpus), 16_000)
    first, again = Crops(recordings, CONFIG, CROP, seed=3), Crops(recordings, CONFIG, CROP, seed=3)
    other_seed = Crops(recordings, CONFIG, CROP, seed=4)
    for step in (0, 7, 1000):
        assert torch.equal(first[step].audio, again[step].audio)
        assert first[step].items == again[step].items
        assert not torch.equal(first[step].audio, other_seed[step].audio)
    assert not torch.equal(first[0].audio, first[1].audio)


def test_processes_share_one_global_batch(corpus: Path) -> None:
    recordings = InMemory(find_utterances(corpus), 16_000)
    whole = Crops(recordings, CONFIG, CROP, seed=0)[5]
    parts = [Crops(recordings, CONFIG, CROP, seed=0, rank=rank, world=2)[5] for rank in range(2)]
    assert torch.equal(whole.audio, torch.cat([part.audio for part in parts]))
    assert whole.items == parts[0].items + parts[1].items
    with pytest.raises(DataError, match="multiple of the 3 processes"):
        Crops(recordings, CONFIG, CROP, seed=0, world=3)


def test_resumed_stream_goes_on(corpus: Path) -> None:
    options = {"sample_rate": 16_000, "crop_samples": CROP, "seed": 0, "rank": 0, "world": 1}
    whole = list(islice(batches(str(corpus), CONFIG, step=0, **options), 5))
    resumed = list(islice(batches(str(corpus), CONFIG, step=3, **options), 2))
    assert [batch.items for batch in whole[3:]] == [batch.items for batch in resumed]


def test_memory_and_disk_give_the_same_crops(corpus: Path) -> None:
    utterances = find_utterances(corpus)
    held = Crops(InMemory(utterances, 16_000), CONFIG, CROP, seed=0)
    read = Crops(OnDisk(utterances, 16_000), CONFIG, CROP, seed=0)
    for step in range(5):
        assert held[step].items == read[step].items
        torch.testing.assert_close(held[step].audio, read[step].audio, rtol=0, atol=1.1 / 32768)


def test_worker_processes_get_a_dataset_that_can_be_sent(corpus: Path) -> None:
    crops = Crops(OnDisk(find_utterances(corpus), 16_000), CONFIG, CROP, seed=3)
    assert torch.equal(pickle.loads(pickle.dumps(crops))[5].audio, crops[5].audio)


def test_long_recordings_come_up_as_often_as_they_are_long(corpus: Path) -> None:
    crops = Crops(InMemory(find_utterances(corpus), 16_000), CONFIG, CROP, seed=0)
    slots = 4 + 8 + 16 + 1  # crops of 0.25 s in 1, 2, 4 and 0.1 s
    items = [item for step in range(slots) for item in crops[step].items]  # four epochs
    counts = Counter(Path(item.partition("@")[0]).stem for item in items)
    assert counts == {"0": 16, "1": 32, "2": 64, "3": 4}


def test_short_recordings_end_in_silence(corpus: Path) -> None:
    crops = Crops(InMemory(find_utterances(corpus), 16_000), CONFIG, CROP, seed=0)
    short = [
        audio
        for step in range(8)
        for audio, item in zip(crops[step].audio, crops[step].items, strict=True)
        if "3.wav" in item
    ]
    assert short
    assert all(audio[1600:].eq(0).all() and audio[:1600].abs().max() > 0.1 for audio in short)


def test_unreadable_files_are_reported_and_skipped(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    utterances = find_utterances(corpus)
    assert [u.audio.stem for u in utterances] == ["0", "1", "2", "3"]
    assert "broken.wav" in caplog.text
    (corpus / "2.wav").unlink()  # gone after the search
    crops = Crops(OnDisk(utterances, 16_000), CONFIG, CROP, seed=0)
    assert not any("2.wav" in item for step in range(8) for item in crops[step].items)
    assert "2.wav" in caplog.text
    assert not any("2.wav" in name for name in InMemory(utterances, 16_000).names)


def test_manifest_paths_are_relative_to_it(corpus: Path) -> None:
    lines = [{"audio_filepath": "0.wav", "duration": 1.0, "text": "a"}, {"audio_filepath": str(corpus / "1.wav")}]
    manifest = corpus / "train.jsonl"
    manifest.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert {u.audio.name: u.duration for u in find_utterances(manifest)} == {"0.wav": 1.0, "1.wav": 2.0}
    manifest.write_text('{"file": "0.wav"}\n')
    with pytest.raises(DataError, match=r"line 1.*audio_filepath"):
        find_utterances(manifest)


def test_other_sample_rates_are_resampled(tmp_path: Path) -> None:
    time = np.arange(48_000) / 24_000
    soundfile.write(tmp_path / "tone.wav", 0.5 * np.sin(2 * np.pi * 440 * time), 24_000)
    utterances = find_utterances(tmp_path)
    for recordings in (InMemory(utterances, 16_000), OnDisk(utterances, 16_000)):
        assert recordings.lengths.tolist() == [32_000]
        crop = recordings.read(0, 8_000, 4_000)
        assert crop.size == 4_000
        assert np.abs(np.fft.rfft(crop * np.hanning(4_000))).argmax() == 110  # 440 Hz in bins of 4 Hz


def test_nothing_to_train_on_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no readable audio"):
        find_utterances(tmp_path)
    with pytest.raises(DataError, match="no speech at"):
        find_utterances(tmp_path / "missing")


def test_gain_changes_level_without_clipping(corpus: Path) -> None:
    draw = np.random.default_rng(0)
    audio = np.array([0.5, -0.25], np.float32)
    quiet = with_gain(audio, (-20.0, -20.0), draw)
    np.testing.assert_allclose(quiet, audio / 10, rtol=1e-6)
    assert np.abs(with_gain(audio, (30.0, 30.0), draw)).max() == pytest.approx(1.0)
    recordings = InMemory(find_utterances(corpus), 16_000)
    levels = Crops(recordings, replace(CONFIG, gain_db=(-30.0, 0.0)), CROP, seed=0)[0].audio.std(dim=1)
    assert levels.max() / levels.min() > 1.5


def test_without_a_gain_crops_are_cut_as_they_are(corpus: Path) -> None:
    recordings = InMemory(find_utterances(corpus), 16_000)
    batch = Crops(recordings, CONFIG, CROP, seed=0)[0]
    for audio, item in zip(batch.audio.numpy(), batch.items, strict=True):
        name, start = item.rsplit("@", 1)
        cut = recordings.read(recordings.names.index(name), int(start), CROP)
        np.testing.assert_array_equal(audio[: cut.size], cut)
