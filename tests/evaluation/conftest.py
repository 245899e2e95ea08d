"""A small test set cut from the bundled recordings, and tiny untrained models."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch

from dtm_codec import DTMCodec
from dtm_codec.config import preset
from dtm_codec.metrics.base import SAMPLE_RATE
from dtm_codec.speech.audio import read_audio, sample_path, write_audio

TEXTS = ("mister dashwood", "an amiable woman", None)


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two English utterances and a German one of 1.2 s each."""
    folder = tmp_path_factory.mktemp("data")
    audio, _ = read_audio(sample_path(), SAMPLE_RATE)
    length = SAMPLE_RATE * 6 // 5
    with (folder / "set.jsonl").open("w") as lines:
        for number, text in enumerate(TEXTS):
            name = f"{number}.wav"
            write_audio(folder / name, audio[(number + 1) * length :][:length], SAMPLE_RATE)
            language = "en" if text else "de"
            row = {"audio_filepath": name, "text": text, "lang": language, "speaker": f"s{number}", "set": "mini"}
            lines.write(json.dumps({**row, "digit": number % 2}) + "\n")
    return folder / "set.jsonl"


@pytest.fixture
def own_manifest(manifest: Path, tmp_path: Path) -> Path:
    """A copy, for tests that change the recordings."""
    return shutil.copytree(manifest.parent, tmp_path / "data") / manifest.name


def save_tiny(name: str, folder: Path, seed: int = 0) -> None:
    """A model of that preset's kind, tiny and untrained."""
    tiny = {"dim": 32, "heads": 2, "mlp_hidden": 48}
    layers = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        DTMCodec(dataclasses.replace(preset(name), **tiny, **layers)).save_pretrained(folder)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two trained models, as recipes find them: one as exported by a training run."""
    folder = tmp_path_factory.mktemp("models")
    save_tiny("s-vfr-50", folder / "s-vfr-50" / "export")
    save_tiny("s-ffr-50", folder / "s-ffr-50")
    return folder


@pytest.fixture
def models_of_seeds(tmp_path: Path) -> Path:
    """Two models, three seeds of each, and a fourth of one of them."""
    folder = tmp_path / "models"
    for name, seeds in {"s-vfr-50": (1, 2, 3, 4), "s-ffr-50": (1, 2, 3)}.items():
        for seed in seeds:
            save_tiny(name, folder / (name if seed == 1 else f"{name}-seed{seed}"), seed)
    return folder
