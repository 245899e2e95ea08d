"""Losses that hear words and voices: a frozen network compares decoded speech with the original.

`Words` looks at the first layers of Whisper's encoder, where sounds are told apart. `Voice` compares the speaker
vectors of Resemblyzer's network. Both come from files that the user names (`loss.words_model`,
`loss.speaker_model`); nothing is downloaded. A model that was trained with them must not be judged by them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import ModelError
from ..nn.spectral import mel_filterbank
from .config import LossConfig

SAMPLE_RATE = 16_000
"""What both networks were trained on."""
WINDOW, HOP = 400, 160


def build_listeners(config: LossConfig, sample_rate: int) -> nn.ModuleDict:
    """The listeners that have a weight, by the name of their loss."""
    listeners: dict[str, nn.Module] = {}
    if config.words:
        listeners["words"] = Words(*read_whisper(Path(str(config.words_model))), layers=config.words_layers)
    if config.speaker:
        listeners["speaker"] = Voice(read_resemblyzer(Path(str(config.speaker_model))))
    if listeners and sample_rate != SAMPLE_RATE:
        raise ModelError(f"sample_rate = {sample_rate}; loss.words and loss.speaker need {SAMPLE_RATE}")
    return nn.ModuleDict(listeners).eval().requires_grad_(False)


class _MelPower(nn.Module):
    """Mel spectrogram of squared magnitudes, 25 ms windows every 10 ms. (B, T) -> (B, T // 160, bands)"""

    window: Tensor
    bank: Tensor

    def __init__(self, bands: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)
        self.register_buffer("bank", mel_filterbank(SAMPLE_RATE, WINDOW, bands).T.contiguous(), persistent=False)

    def forward(self, audio: Tensor) -> Tensor:
        padded = F.pad(audio[:, None], (WINDOW // 2, WINDOW // 2), mode="reflect")[:, 0]
        spectrum: Tensor = torch.fft.rfft(padded.unfold(-1, WINDOW, HOP)[:, : audio.shape[-1] // HOP] * self.window)
        return (spectrum.real.square() + spectrum.imag.square()) @ self.bank


class Words(nn.Module):
    """L1 distance of Whisper's features after its convolutions and after each of the first `layers` blocks, each in
    units of its standard deviation; the mean over layers."""

    positions: Tensor

    def __init__(self, tensors: Mapping[str, Tensor], heads: int, *, layers: int) -> None:
        super().__init__()
        found = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("layers."))
        if layers > found:
            raise ModelError(f"loss.words_layers = {layers}; allowed: 1 ... {found}, what loss.words_model has")
        width, bands = tensors["conv1.weight"].shape[:2]
        self.mel = _MelPower(bands)
        self.conv1 = nn.Conv1d(bands, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(_WhisperBlock(width, heads) for _ in range(layers))
        self.register_buffer("positions", torch.empty_like(tensors["positions"]))
        self.load_state_dict({name: t.float() for name, t in tensors.items() if name in self.state_dict()})

    def forward(self, decoded: Tensor, original: Tensor) -> Tensor:
        """decoded, original: (B, T) -> scalar"""
        with torch.no_grad():
            power = self._log_power(original)
            floor = power.amax((1, 2), keepdim=True) - 8  # Whisper's own: 80 dB below the loudest
            wanted = self._features((power.maximum(floor) + 4) / 4)
        heard = self._features((self._log_power(decoded).maximum(floor) + 4) / 4)
        pairs = zip(heard, wanted, strict=True)
        return torch.stack([F.l1_loss(h.float(), w.float()) / w.float().std() for h, w in pairs]).mean()

    def _log_power(self, audio: Tensor) -> Tensor:
        with torch.autocast(audio.device.type, enabled=False):
            power: Tensor = self.mel(audio.float()).clamp(min=1e-10).log10()
            return power

    def _features(self, log_mel: Tensor) -> list[Tensor]:
        """(B, frames, bands) -> (B, frames / 2, width) of each depth"""
        x = F.gelu(self.conv2(F.gelu(self.conv1(log_mel.transpose(1, 2))))).transpose(1, 2)
        x = x + self.positions[: x.shape[1]].to(x.dtype)
        features = [x]
        for layer in self.layers:
            features.append(layer(features[-1]))
        return features


class _WhisperBlock(nn.Module):
    """Pre-norm attention and MLP, as Whisper's encoder has them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, width) -> (B, S, width)"""
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y: Tensor = x + self.contract(F.gelu(self.expand(self.mlp_norm(x))))
        return y


class Voice(nn.Module):
    """1 - cosine of Resemblyzer's speaker vectors: three LSTM layers over mel power, speech at -30 dBFS."""

    BANDS, LEVEL = 40, 10 ** (-30 / 20)

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.mel = _MelPower(self.BANDS)
        self.lstm = nn.LSTM(self.BANDS, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)
        self.load_state_dict({name: t for name, t in tensors.items() if name in self.state_dict()})

    def forward(self, decoded: Tensor, original: Tensor) -> Tensor:
        """decoded, original: (B, T) -> scalar"""
        with torch.autocast(decoded.device.type, enabled=False):
            with torch.no_grad():
                level = original.float().square().mean(-1, keepdim=True).sqrt()
                gain = self.LEVEL / level.clamp(min=1e-4)
                wanted = self._vector(original * gain)
            return (1 - (self._vector(decoded.float() * gain) * wanted).sum(-1)).mean()

    def _vector(self, audio: Tensor) -> Tensor:
        """(B, T) -> (B, 256) of length 1"""
        _, (hidden, _) = self.lstm(self.mel(audio))
        return F.normalize(F.relu(self.linear(hidden[-1])), dim=-1)


def read_resemblyzer(path: Path) -> dict[str, Tensor]:
    try:
        state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    except Exception as error:  # torch raises many kinds
        raise ModelError(f"loss.speaker_model = {str(path)!r}; allowed: pretrained.pt of Resemblyzer") from error
    return state


def read_whisper(folder: Path) -> tuple[dict[str, Tensor], int]:
    """Weights of a Whisper encoder under the names of `Words`, and its number of heads.

    folder: as transformers saves it (`model.safetensors`), or as CTranslate2 does (`model.bin`).
    """
    if (folder / "model.safetensors").is_file():
        tensors = _renamed(safetensors.torch.load_file(folder / "model.safetensors"), _TRANSFORMERS)
    elif (folder / "model.bin").is_file():
        tensors = _renamed(_read_ctranslate2(folder / "model.bin"), _CTRANSLATE2)
    else:
        tensors = {}
    if "conv1.weight" not in tensors:
        allowed = "a folder of Whisper with model.safetensors (transformers) or model.bin (CTranslate2)"
        raise ModelError(f"loss.words_model = {str(folder)!r}; allowed: {allowed}")
    for name in [name for name in tensors if name.endswith("q.weight")]:  # transformers keeps the three apart
        prefix = name.removesuffix("q.weight")
        bias = tensors.pop(f"{prefix}q.bias")
        weights = [tensors.pop(f"{prefix}{part}.weight") for part in "qkv"]
        tensors[f"{prefix}qkv.weight"] = torch.cat(weights)
        tensors[f"{prefix}qkv.bias"] = torch.cat([bias, torch.zeros_like(bias), tensors.pop(f"{prefix}v.bias")])
    return tensors, tensors["conv1.weight"].shape[0] // 64  # every size of Whisper has heads of 64


_TRANSFORMERS = {
    "model.encoder.": "",
    "encoder.": "",
    "embed_positions.weight": "positions",
    "self_attn_layer_norm": "attention_norm",
    "final_layer_norm": "mlp_norm",
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.out_proj": "out",
    "fc1": "expand",
    "fc2": "contract",
}
_CTRANSLATE2 = {
    "encoder/": "",
    "position_encodings/encodings": "positions",
    "self_attention/layer_norm": "attention_norm",
    "ffn/layer_norm": "mlp_norm",
    "layer_norm": "norm",
    "layer_": "layers/",
    "self_attention/linear_0": "qkv",
    "self_attention/linear_1": "out",
    "ffn/linear_0": "expand",
    "ffn/linear_1": "contract",
    "gamma": "weight",
    "beta": "bias",
    "/": ".",
}


def _renamed(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """The encoder's tensors, with all `names` replaced in order."""
    renamed = {}
    for name, tensor in tensors.items():
        if "encoder" in name:
            for old, new in names.items():
                name = name.replace(old, new)
            renamed[name] = tensor
    return renamed


def _read_ctranslate2(path: Path) -> dict[str, Tensor]:
    """CTranslate2's own file: a list of named tensors, of which Whisper's are 16-bit floats."""
    data, offset, tensors = path.read_bytes(), 0, {}

    def take(form: str) -> Any:
        nonlocal offset
        (value,) = struct.unpack_from(f"<{form}", data, offset)
        offset += struct.calcsize(f"<{form}")
        return value

    def take_name() -> str:
        length = take("H")
        return bytes(take(f"{length}s")).rstrip(b"\0").decode()

    try:
        take("I"), take_name(), take("I")  # version, kind of model, revision
        for _ in range(take("I")):
            name, rank = take_name(), take("B")
            shape = [take("I") for _ in range(rank)]
            kind, size = take("B"), take("I")
            if kind == 4:
                values = np.frombuffer(data, np.float16, size // 2, offset).reshape(shape)
                tensors[name] = torch.from_numpy(values.astype(np.float32))
            offset += size
    except (struct.error, ValueError) as error:
        raise ModelError(f"{path} is no model of CTranslate2 ({error})") from error
    return tensors
