from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
import torch
from corpus_helpers import SAMPLE_RATE, Speech, files, one_thread, recording, run_inline, write_manifest

from dtm_codec import DTMCodec, QuantizerConfig, preset
from dtm_codec.corpus import run, tokenize
from dtm_codec.speech.audio import write_audio


@pytest.fixture(scope="session")
def speech() -> list[Speech]:
    """Recordings of many lengths; one at another sample rate, some without text or speaker."""
    recordings = [
        Speech(f"{i % 3}/utt{i:02d}", recording(i, 0.1 + 0.17 * i), SAMPLE_RATE, f"text {i}", f"s{i % 3}")
        for i in range(11)
    ]
    recordings[4] = replace(recordings[4], audio=recording(4, 0.7, 22_050), sample_rate=22_050)
    recordings[5] = replace(recordings[5], text=None, speaker=None)
    return sorted(recordings, key=lambda r: r.name)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with a tau of its own."""
    torch.manual_seed(0)
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    config = replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **sizes)
    codec = DTMCodec(replace(config, quantizer=QuantizerConfig(codebook_size=256)))
    codec.network.tau.fill_(codec.network.calibrated_tau(torch.from_numpy(recording(1, 1.0))[None]))
    folder = tmp_path_factory.mktemp("model") / "tiny"
    codec.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def codec(tiny_model: Path) -> DTMCodec:
    """As commands load it."""
    return DTMCodec.from_pretrained(tiny_model, backend="onnx")


@pytest.fixture
def manifest(tmp_path: Path, speech: list[Speech]) -> Path:
    """The recordings as files, with a manifest beside them."""
    return write_manifest(tmp_path / "corpus", speech)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No time is lost on starting worker processes."""
    monkeypatch.setattr(run, "run_in_processes", run_inline)
    with one_thread():
        yield


@pytest.fixture
def rows() -> Callable[[Path], list[dict[str, Any]]]:
    """The rows of a tokenized corpus, read by pyarrow alone."""

    def read(out: Path) -> list[dict[str, Any]]:
        return pyarrow.dataset.dataset(out / "data").to_table().to_pylist()

    return read


@pytest.fixture(scope="session")
def clips(tmp_path_factory) -> Path:
    """Sixty clips, enough for a kill to come between two shards."""
    folder = tmp_path_factory.mktemp("clips")
    for index in range(60):
        write_audio(folder / f"{index:03d}.wav", recording(index % 7, 0.5 + 0.02 * index), SAMPLE_RATE)
    return folder


@pytest.fixture(scope="session")
def whole(clips, tmp_path_factory, tiny_model) -> dict[str, bytes]:
    """What an undisturbed run in this process writes."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch, one_thread():
        patch.setattr(run, "run_in_processes", run_inline)
        return files(tokenize(clips, out, model=tiny_model, shard_size=2).folder)
