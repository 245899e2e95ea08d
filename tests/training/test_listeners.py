"""Losses that hear words and voices, with small random networks in the file formats of the real ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import training_support as support
from lightning_fabric import Fabric
from torch import Tensor

from dtm_codec.errors import ConfigError, ModelError
from dtm_codec.training.config import LossConfig
from dtm_codec.training.data import Batch
from dtm_codec.training.listeners import Voice, Words, build_listeners, read_resemblyzer, read_whisper
from dtm_codec.training.trainer import Trainer

WIDTH, BANDS, LAYERS = 64, 80, 2


def transformers_weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def values(*shape: int) -> Tensor:
        return (0.1 * torch.randn(*shape, generator=generator)).half().float()

    tensors = {
        "model.encoder.conv1.weight": values(WIDTH, BANDS, 3),
        "model.encoder.conv1.bias": values(WIDTH),
        "model.encoder.conv2.weight": values(WIDTH, WIDTH, 3),
        "model.encoder.conv2.bias": values(WIDTH),
        "model.encoder.embed_positions.weight": values(1500, WIDTH),
        "model.encoder.layer_norm.weight": values(WIDTH),
        "model.encoder.layer_norm.bias": values(WIDTH),
        "model.decoder.embed_positions.weight": values(10, WIDTH),
    }
    for i in range(LAYERS):
        prefix = f"model.encoder.layers.{i}."
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            tensors |= {
                f"{prefix}{norm}.weight": (1 + values(WIDTH)).half().float(),
                f"{prefix}{norm}.bias": values(WIDTH),
            }
        for part in ("q_proj", "v_proj", "out_proj"):
            tensors[f"{prefix}self_attn.{part}.bias"] = values(WIDTH)
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            tensors[f"{prefix}self_attn.{part}.weight"] = values(WIDTH, WIDTH)
        tensors |= {f"{prefix}fc1.weight": values(4 * WIDTH, WIDTH), f"{prefix}fc1.bias": values(4 * WIDTH)}
        tensors |= {f"{prefix}fc2.weight": values(WIDTH, 4 * WIDTH), f"{prefix}fc2.bias": values(WIDTH)}
    return tensors


def ctranslate2_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights as CTranslate2 names and joins them."""
    plain = {name.removeprefix("model.encoder."): t for name, t in tensors.items() if "encoder" in name}
    joined = {
        **{f"encoder/{c}/{kind}": plain[f"{c}.{kind}"] for c in ("conv1", "conv2") for kind in ("weight", "bias")},
        "encoder/position_encodings/encodings": plain["embed_positions.weight"],
        "encoder/layer_norm/gamma": plain["layer_norm.weight"],
        "encoder/layer_norm/beta": plain["layer_norm.bias"],
    }
    for i in range(LAYERS):
        own = {n.removeprefix(f"layers.{i}."): t for n, t in plain.items() if n.startswith(f"layers.{i}.")}
        prefix = f"encoder/layer_{i}"
        qkv = torch.cat([own[f"self_attn.{p}_proj.weight"] for p in "qkv"])
        bias = [own["self_attn.q_proj.bias"], torch.zeros(WIDTH), own["self_attn.v_proj.bias"]]
        joined |= {
            f"{prefix}/self_attention/linear_0/weight": qkv,
            f"{prefix}/self_attention/linear_0/bias": torch.cat(bias),
            f"{prefix}/self_attention/linear_1/weight": own["self_attn.out_proj.weight"],
            f"{prefix}/self_attention/linear_1/bias": own["self_attn.out_proj.bias"],
            f"{prefix}/self_attention/layer_norm/gamma": own["self_attn_layer_norm.weight"],
            f"{prefix}/self_attention/layer_norm/beta": own["self_attn_layer_norm.bias"],
            f"{prefix}/ffn/layer_norm/gamma": own["final_layer_norm.weight"],
            f"{prefix}/ffn/layer_norm/beta": own["final_layer_norm.bias"],
            f"{prefix}/ffn/linear_0/weight": own["fc1.weight"],
            f"{prefix}/ffn/linear_0/bias": own["fc1.bias"],
            f"{prefix}/ffn/linear_1/weight": own["fc2.weight"],
            f"{prefix}/ffn/linear_1/bias": own["fc2.bias"],
        }
    return joined


def write_ctranslate2(path: Path, tensors: dict[str, Tensor]) -> None:
    def name_bytes(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    data = struct.pack("<I", 6) + name_bytes("WhisperSpec") + struct.pack("<II", 3, len(tensors) + 1)
    data += name_bytes("encoder/num_heads") + struct.pack("<BBIh", 0, 2, 2, 1)
    for name, tensor in tensors.items():
        values = tensor.numpy().astype(np.float16).tobytes()
        sizes = struct.pack(f"<{tensor.ndim}I", *tensor.shape)
        data += name_bytes(name) + struct.pack("<B", tensor.ndim) + sizes + struct.pack("<BI", 4, len(values)) + values
    path.write_bytes(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whisper as transformers and as CTranslate2 save it, and Resemblyzer's file."""
    folder = tmp_path_factory.mktemp("listeners")
    for name in ("transformers", "ctranslate2"):
        (folder / name).mkdir()
    safetensors.torch.save_file(transformers_weights(), folder / "transformers" / "model.safetensors")
    write_ctranslate2(folder / "ctranslate2" / "model.bin", ctranslate2_names(transformers_weights()))
    lstm, linear = torch.nn.LSTM(40, 256, 3), torch.nn.Linear(256, 256)
    generator = torch.Generator().manual_seed(0)
    for parameter in (*lstm.parameters(), *linear.parameters()):
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    state = {f"lstm.{n}": t for n, t in lstm.state_dict().items()}
    state |= {f"linear.{n}": t for n, t in linear.state_dict().items()} | {"similarity_weight": torch.ones(1)}
    torch.save({"step": 1, "model_state": state}, folder / "pretrained.pt")
    return folder


@pytest.fixture(scope="module")
def audio(speech: np.ndarray) -> Tensor:
    return torch.from_numpy(speech).view(2, -1)


def test_both_file_formats_hold_the_same_network(folder: Path, audio: Tensor) -> None:
    networks = [Words(*read_whisper(folder / name), layers=LAYERS) for name in ("transformers", "ctranslate2")]
    features = [network._features(network._log_power(audio)) for network in networks]
    assert len(features[0]) == LAYERS + 1
    for ours, theirs in zip(*features, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", ["words", "speaker"])
def test_only_the_same_sound_is_at_distance_0(folder: Path, audio: Tensor, kind: str) -> None:
    words = Words(*read_whisper(folder / "transformers"), layers=1)
    listener = words if kind == "words" else Voice(read_resemblyzer(folder / "pretrained.pt"))
    assert float(listener(audio, audio)) == pytest.approx(0, abs=1e-3)
    changed = (audio + 0.05 * torch.randn(audio.shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    distance = listener(changed, audio)
    assert float(distance) > 1e-2
    distance.backward()
    assert changed.grad is not None
    assert torch.isfinite(changed.grad).all()
    assert (changed.grad.abs().amax(-1) > 0).all()


def test_only_losses_with_a_weight_are_loaded(folder: Path) -> None:
    assert not build_listeners(LossConfig(words_model="nowhere"), 16_000)
    both = LossConfig(
        words=1, words_model=str(folder / "ctranslate2"), speaker=1, speaker_model=str(folder / "pretrained.pt")
    )
    listeners = build_listeners(both, 16_000)
    assert list(listeners) == ["words", "speaker"]
    assert not any(p.requires_grad for p in listeners.parameters())
    with pytest.raises(ModelError, match="24000"):
        build_listeners(both, 24_000)


def test_what_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"loss\.words_model = None; allowed: a path"):
        LossConfig(words=1)
    with pytest.raises(ModelError, match="nowhere"):
        read_whisper(Path("nowhere"))
    with pytest.raises(ModelError, match="nowhere"):
        read_resemblyzer(Path("nowhere"))
    with pytest.raises(ModelError, match=r"words_layers = 3; allowed: 1 \.\.\. 2"):
        Words(*read_whisper(folder / "transformers"), layers=3)
    (folder / "cut").mkdir()
    (folder / "cut" / "model.bin").write_bytes((folder / "ctranslate2" / "model.bin").read_bytes()[:1000])
    with pytest.raises(ModelError, match="no model of CTranslate2"):
        read_whisper(folder / "cut")


def test_those_who_take_turns_are_in_every_line_of_the_log(folder: Path, tmp_path: Path, audio: Tensor) -> None:
    models = {"words": folder / "transformers", "speaker": folder / "pretrained.pt"}
    settings = [f"loss.{name}_model={path}" for name, path in models.items()]
    settings += ["loss.words=1", "loss.speaker=1", "loss.words_layers=1", "loss.listen_every=2"]
    trainer = Trainer(support.tiny(tmp_path, *settings), Fabric(accelerator="cpu", devices=1))
    lines = [trainer.train_step(Batch(audio, ["a"] * len(audio))) for _ in range(3)]
    assert "speaker" not in lines[0]
    assert lines[1]["words"] == lines[0]["words"]
    assert lines[2]["speaker"] == lines[1]["speaker"] != lines[2]["words"] != lines[1]["words"]
