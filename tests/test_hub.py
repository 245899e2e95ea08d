"""Model folders: what is saved comes back, what is wrong is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dtm_codec import DTMCodec, Encoded, hub
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.config import preset
from dtm_codec.errors import ConfigError, ModelError

TINY = {"dim": 32, "heads": 2, "mlp_hidden": 48, "enc1_layers": 1, "enc2_layers": 1, "dec1_layers": 1, "dec2_layers": 1}


@pytest.fixture
def codec() -> DTMCodec:
    torch.manual_seed(0)
    return DTMCodec(replace(preset("s-vfr-50"), **TINY))


def test_a_saved_model_comes_back_with_its_id_tau_and_codes(codec: DTMCodec, tmp_path: Path) -> None:
    codec.tau.fill_(0.3)
    model_id = codec.save_pretrained(tmp_path)
    assert model_id == codec.model_id
    loaded = DTMCodec.from_pretrained(tmp_path)
    assert loaded.model_id == model_id
    assert float(loaded.tau) == 0.3
    audio = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    assert loaded.encode(audio, 16_000) == codec.eval().encode(audio, 16_000)


def test_a_path_is_a_folder_even_if_a_bundled_model_has_its_name(
    codec: DTMCodec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model_id = codec.save_pretrained("small")
    with torch.inference_mode():
        assert DTMCodec.from_pretrained(Path("small")).model_id == model_id
        assert DTMCodec.from_pretrained("small").model_id != model_id


def test_a_half_precision_model_has_an_id_of_its_own(codec: DTMCodec, tmp_path: Path) -> None:
    model_id = codec.save_pretrained(tmp_path, torch.bfloat16)
    loaded = DTMCodec.from_pretrained(tmp_path)
    assert loaded.model_id == model_id != codec.model_id
    assert loaded.head.project.weight.dtype == torch.float32
    loaded._identity = None
    assert loaded.model_id == model_id


def test_token_statistics_ship_with_the_model_and_belong_to_its_id(codec: DTMCodec, tmp_path: Path) -> None:
    plain = codec.model_id
    counts = np.arange(1, codec.config.quantizer.codebook_size + 1)
    codec.token_model = TokenModel.from_counts(counts)
    assert codec.save_pretrained(tmp_path) == codec.model_id != plain
    loaded = DTMCodec.from_pretrained(tmp_path)
    assert loaded.token_model is not None
    for name, array in codec.token_model.to_arrays().items():
        assert np.array_equal(loaded.token_model.to_arrays()[name], array)
    encoded = loaded.encode(np.random.default_rng(0).standard_normal(16_000).astype(np.float32), 16_000)
    assert Encoded.from_bytes(encoded.to_bytes()) == encoded


def test_the_id_follows_the_weights(codec: DTMCodec) -> None:
    before = codec.model_id
    with torch.no_grad():
        codec.head.project.bias.add_(0.1)
    assert codec.model_id != before
    assert codec.model_id.split(":")[0] == "s-vfr-50"
    own = codec.model_id
    codec.load_state_dict({name: -tensor for name, tensor in codec.state_dict().items()}, assign=True)
    assert codec.model_id != own
    with torch.inference_mode():
        assert DTMCodec(codec.config).model_id.split(":")[0] == "s-vfr-50"


def test_statistics_given_by_hand_are_used_at_once(codec: DTMCodec) -> None:
    speech = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    plain = codec.encode(speech, 16_000)
    counts = np.bincount(plain.codes, minlength=codec.config.quantizer.codebook_size) + 0.01
    codec.token_model = TokenModel.from_counts(counts)
    coded = codec.encode(speech, 16_000)
    assert len(coded.to_bytes()) < len(plain.to_bytes())
    assert Encoded.from_bytes(coded.to_bytes()) == coded


def test_random_presets_are_the_same_every_time() -> None:
    state = torch.get_rng_state()
    first, second = (DTMCodec.from_pretrained("random:s-vfr-50") for _ in range(2))
    assert first.model_id == second.model_id
    assert torch.equal(torch.get_rng_state(), state)


def test_unknown_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model 'huge'"):
        DTMCodec.from_pretrained("huge")
    with pytest.raises(ModelError, match=r"no config\.json"):
        DTMCodec.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="unknown preset 'huge'"):
        DTMCodec.from_pretrained("random:huge")


def test_weights_that_do_not_match_the_config_are_named(codec: DTMCodec, tmp_path: Path) -> None:
    codec.save_pretrained(tmp_path)
    config = json.loads((tmp_path / hub.CONFIG_FILE).read_text())
    for change, message in (
        ({"enc1_layers": 2}, "tensors missing, such as 'enc1.blocks.1"),
        ({"upsampler": "repeat"}, "unknown, such as 'up.embedding'"),
        ({"mlp_hidden": 64}, "has shape"),
    ):
        (tmp_path / hub.CONFIG_FILE).write_text(json.dumps(config | change))
        with pytest.raises(ModelError, match=message):
            DTMCodec.from_pretrained(tmp_path)
    (tmp_path / hub.CONFIG_FILE).write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        DTMCodec.from_pretrained(tmp_path)


def test_damaged_weights_are_named(codec: DTMCodec, tmp_path: Path) -> None:
    codec.save_pretrained(tmp_path)
    weights = tmp_path / hub.WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="safetensors"):
        DTMCodec.from_pretrained(tmp_path)
