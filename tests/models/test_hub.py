"""Model folders: what is saved comes back, what is wrong is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dtm_codec import DTMCodec
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.config import CodecConfig, preset
from dtm_codec.errors import BitstreamError, ConfigError, ModelError
from dtm_codec.models import hub
from dtm_codec.models.weights import shapes

TINY = {"dim": 32, "heads": 2, "mlp_hidden": 48, "enc1_layers": 1, "enc2_layers": 1, "dec1_layers": 1, "dec2_layers": 1}


@pytest.fixture
def codec() -> DTMCodec:
    torch.manual_seed(0)
    return DTMCodec(replace(preset("s-vfr-50"), **TINY))


def test_a_saved_model_comes_back_with_its_id_tau_and_codes(codec: DTMCodec, tmp_path: Path) -> None:
    codec.network.tau.fill_(0.3)
    model_id = codec.save_pretrained(tmp_path)
    assert model_id == codec.model_id
    loaded = DTMCodec.from_pretrained(tmp_path)
    assert loaded.model_id == model_id
    assert float(loaded.network.tau) == 0.3
    audio = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    assert loaded.encode(audio, 16_000) == codec.encode(audio, 16_000)


def test_a_path_is_a_folder_even_if_a_bundled_model_has_its_name(
    codec: DTMCodec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model_id = codec.save_pretrained("small")
    with torch.inference_mode():
        assert DTMCodec.from_pretrained(Path("small")).model_id == model_id
        assert DTMCodec.from_pretrained("small").model_id != model_id


def test_a_bundled_model_without_weights_has_those_of_the_default_one(
    codec: DTMCodec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "BUNDLED", tmp_path)
    codec.save_pretrained(tmp_path / hub.DEFAULT_MODEL)
    live = replace(codec.config, name="s-live", enc1_lookahead=0, dec2_lookahead=1)
    (tmp_path / hub.LIVE_MODEL).mkdir()
    (tmp_path / hub.LIVE_MODEL / hub.CONFIG_FILE).write_text(json.dumps(live.to_dict()))
    assert list(hub.bundled_models()) == [hub.DEFAULT_MODEL, hub.LIVE_MODEL]
    files, streams = hub.load(hub.DEFAULT_MODEL), hub.load(hub.LIVE_MODEL)
    assert streams.config == live
    assert streams.tensors is not None
    assert files.tensors is not None
    assert all(np.array_equal(streams.tensors[name], files.tensors[name], equal_nan=True) for name in files.tensors)
    assert streams.model_id != files.model_id
    elsewhere = tmp_path / "user" / "model"
    elsewhere.mkdir(parents=True)
    (elsewhere / hub.CONFIG_FILE).write_text(json.dumps(live.to_dict()))
    with pytest.raises(ModelError, match=r"no model folder: it has no model\.safetensors"):
        hub.load(elsewhere)


def test_a_half_precision_model_has_an_id_of_its_own(codec: DTMCodec, tmp_path: Path) -> None:
    model_id = codec.save_pretrained(tmp_path, torch.bfloat16)
    loaded = DTMCodec.from_pretrained(tmp_path)
    assert loaded.model_id == model_id != codec.model_id
    assert loaded.network.head.project.weight.dtype == torch.float32
    loaded._identity = (None, "")
    assert loaded.model_id == model_id
    assert loaded.save_pretrained(tmp_path / "full", torch.float32) == model_id  # the same values, stored wider


def noise(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(16_000).astype(np.float32)


def statistics_of(codec: DTMCodec, audio: np.ndarray, unseen: float = 0.01) -> TokenModel:
    """Under which this audio's own tokens are cheap, so that files are range coded."""
    codes = codec.encode(audio, 16_000).codes
    return TokenModel.from_counts(np.bincount(codes, minlength=codec.config.quantizer.codebook_size) + unseen)


def test_token_statistics_ship_with_the_model(codec: DTMCodec, tmp_path: Path) -> None:
    codec.token_model = statistics_of(codec, noise())
    codec.save_pretrained(tmp_path)
    loaded = DTMCodec.from_pretrained(tmp_path)
    assert loaded.token_model is not None
    for name, array in codec.token_model.to_arrays().items():
        assert np.array_equal(loaded.token_model.to_arrays()[name], array)
    encoded = loaded.encode(noise(), 16_000)
    assert loaded.to_bytes(encoded) == codec.to_bytes(encoded)
    assert loaded.from_bytes(codec.to_bytes(encoded)) == encoded


def test_exports_with_and_without_token_statistics_are_one_model(codec: DTMCodec, tmp_path: Path) -> None:
    plain = codec.save_pretrained(tmp_path / "plain")
    codec.token_model = statistics_of(codec, noise())
    assert codec.save_pretrained(tmp_path / "with") == codec.model_id == plain
    packs, bare = DTMCodec.from_pretrained(tmp_path / "with"), DTMCodec.from_pretrained(tmp_path / "plain")
    encoded = packs.encode(noise(), 16_000)
    assert packs.from_bytes(bare.to_bytes(encoded)) == encoded  # range coded tokens alone need the statistics
    assert np.array_equal(bare.decode(encoded), packs.decode(encoded))
    with pytest.raises(BitstreamError, match=f"coded with the statistics of model '{plain}'"):
        bare.from_bytes(packs.to_bytes(encoded))
    other = DTMCodec.from_pretrained(tmp_path / "plain")
    other.token_model = statistics_of(codec, noise(1))
    assert other.model_id == plain
    for mine, theirs in ((packs, other), (other, packs)):
        with pytest.raises(BitstreamError, match=r"statistics [0-9a-f]{4} of model .*; given: [0-9a-f]{4}"):
            mine.from_bytes(theirs.to_bytes(theirs.encode(noise(0 if theirs is packs else 1), 16_000)))


def test_a_new_option_of_the_configuration_leaves_old_ids_alone(codec: DTMCodec) -> None:
    """Options at their defaults do not count, wherever they stand."""
    plain, defaults = codec.config.to_dict(), CodecConfig().to_dict()
    difference = hub._difference(plain, defaults)
    assert difference["head"] == "source-filter"
    assert "window" not in difference
    newer, newer_defaults = (
        config | {"lookahead": 3, "selector": config["selector"] | {"knob": 1}} for config in (plain, defaults)
    )
    assert hub._difference(newer, newer_defaults) == difference
    changed = plain | {"selector": plain["selector"] | {"s_max": 8}}
    assert hub._difference(changed, defaults) == difference | {"selector": {"s_max": 8}}


def test_files_of_another_model_are_refused_by_name(codec: DTMCodec, tmp_path: Path) -> None:
    other = DTMCodec(replace(codec.config, norm_eps=0.5))
    data = codec.to_bytes(codec.encode(noise(), 16_000))
    with pytest.raises(ModelError, match=f"{codec.model_id}.*{other.model_id}"):
        other.from_bytes(data)


def test_files_on_disk(codec: DTMCodec, tmp_path: Path) -> None:
    encoded = codec.encode(noise(), 16_000)
    for mode in ("raw", "compact"):
        codec.save(encoded, tmp_path / "speech.dtm", mode)
        assert (tmp_path / "speech.dtm").read_bytes() == codec.to_bytes(encoded, mode)
        assert codec.load(tmp_path / "speech.dtm") == encoded


def test_ids_stay_as_they_were() -> None:
    """Files name the model that decodes them, so another id for the same weights would lose them."""
    config = preset("s-vfr-50")
    halves = {name: np.full(shape, 0.5) for name, shape in shapes(config).items()}
    assert hub.model_id_of(config, halves) == "s-vfr-50:0be120b6"


def test_the_id_follows_the_weights(codec: DTMCodec) -> None:
    before = codec.model_id
    with torch.no_grad():
        codec.network.head.project.bias.add_(0.1)
    assert codec.model_id != before
    assert codec.model_id.split(":")[0] == "s-vfr-50"
    own = codec.model_id
    codec.network.load_state_dict({n: -tensor for n, tensor in codec.network.state_dict().items()}, assign=True)
    assert codec.model_id != own
    with torch.inference_mode():
        assert DTMCodec(codec.config).model_id.split(":")[0] == "s-vfr-50"


def test_statistics_given_by_hand_are_used_at_once(codec: DTMCodec) -> None:
    encoded = codec.encode(noise(), 16_000)
    plain = codec.to_bytes(encoded)
    codec.token_model = statistics_of(codec, noise())
    assert len(codec.to_bytes(encoded)) < len(plain)
    assert codec.from_bytes(codec.to_bytes(encoded)) == encoded
    assert codec.from_bytes(plain) == encoded


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
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read as JSON"):
        DTMCodec.from_pretrained(tmp_path)


def test_damaged_weights_are_named(codec: DTMCodec, tmp_path: Path) -> None:
    codec.save_pretrained(tmp_path)
    weights = tmp_path / hub.WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="safetensors"):
        DTMCodec.from_pretrained(tmp_path)
