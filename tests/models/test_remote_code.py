"""A model folder through transformers: the same tokens and the same speech as through the codec itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtm_codec import DTMCodec
from dtm_codec.config import preset
from dtm_codec.errors import ConfigError

TINY = {"dim": 32, "heads": 2, "mlp_hidden": 48, "enc1_layers": 1, "enc2_layers": 1, "dec1_layers": 1, "dec2_layers": 1}
LENGTHS = (12_000, 8_001)


@pytest.fixture(scope="module")
def codec() -> DTMCodec:
    torch.manual_seed(0)
    codec = DTMCodec(replace(preset("s-vfr-50"), **TINY))
    codec.network.tau.fill_(0.3)
    codec.trained_bitrates = (450.0, 1300.0)
    return codec


@pytest.fixture(scope="module")
def folder(codec: DTMCodec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    codec.save_pretrained(folder, transformers=True)
    return folder


@pytest.fixture(scope="module")
def auto(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """transformers, without network, with its copies of remote code in a folder of the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model(auto: Any, folder: Path) -> Any:
    return auto.AutoModel.from_pretrained(folder, trust_remote_code=True)


@pytest.fixture(scope="module")
def inputs(auto: Any, folder: Path, speech: np.ndarray) -> Any:
    extract = auto.AutoFeatureExtractor.from_pretrained(folder)
    return extract([speech[:size] for size in LENGTHS], sampling_rate=16_000, return_tensors="pt")


def test_tokens_and_speech_are_those_of_the_codec(model: Any, inputs: Any, codec: DTMCodec, speech: np.ndarray) -> None:
    assert inputs["input_values"].shape == (2, 1, 12_000)
    encoded = model.encode(**inputs, token_rate=40)
    alone = [codec.encode(speech[:size], 16_000, token_rate=40) for size in LENGTHS]
    assert encoded.audio_codes.shape == (2, 1, 30)
    for row, e in enumerate(alone):
        size = int(encoded.code_lengths[row])
        assert encoded.audio_codes[row, 0, :size].tolist() == e.codes.tolist()
        assert encoded.durations[row, :size].tolist() == e.durations.tolist()
        assert encoded.mask[row, : e.mask.size].tolist() == e.mask.tolist()
    decoded = model.decode(encoded.audio_codes, encoded.durations, encoded.code_lengths, encoded.num_samples)
    assert decoded.audio_values.shape == (2, 1, 12_000)
    assert decoded.padding_mask.sum(1).tolist() == list(LENGTHS)
    for row, e in enumerate(alone):
        assert np.abs(decoded.audio_values[row, 0, : e.num_samples].numpy() - codec.decode(e)).max() < 1e-4
    both = model(**inputs, token_rate=40)
    assert torch.equal(both.audio_values, decoded.audio_values)
    assert torch.equal(both.audio_codes, encoded.audio_codes)


def test_generated_tokens_need_no_lengths(model: Any) -> None:
    codes, durations = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([[1, 2, 3], [4, 0, 0]])
    decoded = model.decode(codes, durations)
    assert decoded.padding_mask.sum(1).tolist() == [6 * 160, 4 * 160]


def test_the_configuration_tells_what_users_of_codecs_ask(auto: Any, folder: Path, codec: DTMCodec) -> None:
    config = auto.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    assert (config.sampling_rate, config.frame_rate, config.codebook_size) == (16_000, 100.0, 16_384)
    assert config.codec_config == codec.config


def test_a_folder_for_transformers_is_a_model_folder(model: Any, folder: Path, codec: DTMCodec, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "again")
    for where in (folder, tmp_path / "again"):
        loaded = DTMCodec.from_pretrained(where)
        assert (loaded.model_id, loaded.trained_bitrates) == (codec.model_id, (450.0, 1300.0))
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in (tmp_path / "again").iterdir())


def test_what_cannot_be_is_refused(auto: Any, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"dtype = torch\.float16; allowed: float32"):
        auto.AutoModel.from_pretrained(folder, trust_remote_code=True, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"device_map = \{'': 0\}; allowed: one device"):
        auto.AutoModel.from_pretrained(folder, trust_remote_code=True, device_map={"": 0})
    with pytest.raises(ValueError, match="trust_remote_code"):
        auto.AutoModel.from_pretrained(folder, trust_remote_code=False)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "dtm_codec", "codec": {"dim": -1}}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="dim = -1"):
        DTMCodec.from_pretrained(tmp_path)


def test_a_process_that_knows_only_transformers_loads_it(folder: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from transformers import AutoModel; import torch\n"
        "model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)\n"
        "assert 'modeling_dtm_codec' in type(model).__module__ and 'transformers_modules' in type(model).__module__\n"
        "print(tuple(model(torch.zeros(1, 1, 1600)).audio_values.shape), model.device)\n"
    )
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, folder], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "(1, 1, 1600) cpu\n", done.stderr
