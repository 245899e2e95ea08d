"""EnCodec, DAC, Mimi and X-Codec through transformers, SNAC through its package.

`encodec:1.5` (kbps), `dac:2` and `mimi:8` (codebooks), `xcodec:1` (kbps), `snac`. Weights by `?model=`: a folder, a hub
id, or `random`, which will do for measuring speed. Bits are codes x log2(codebook size).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...backends import check_device
from ...errors import ConfigError, DTMCodecError, ModelError
from ...layout import Bits
from ...metrics.base import SAMPLE_RATE
from ...specs import Spec, positive_number, whole_number
from ...speech.audio import Samples, resample
from ...system.files import fingerprint
from ...system.optional import import_optional
from .base import Coded, System, fit

RANDOM = "random"
CODEBOOKS = "codebooks"


class NeuralCodec(System):
    """A network whose encoder gives codes and whose decoder takes them."""

    kind: ClassVar[str]
    hub_id: ClassVar[str]
    setting: ClassVar[str]
    """What the argument sets."""
    default: ClassVar[float]

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(("model",))
        self.model = spec.options.get("model", self.hub_id)
        self.device = "cpu"
        text, where = spec.argument or f"{self.default:g}", f"{spec.kind}: {self.setting}"
        self.value = value = whole_number(text, where, 1) if self.setting == CODEBOOKS else positive_number(text, where)
        self.name = f"{spec.kind}:{value:g}" + (f"?model={self.model}" if "model" in spec.options else "")
        self.series = self.kind + (" (random weights)" if self.model == RANDOM else "")
        self.title = f"{self.kind} {value:g} {self.setting}" + (" (random weights)" if self.model == RANDOM else "")

    @property
    def identity(self) -> str:
        path = Path(self.model)
        return f"{path.name} {fingerprint(path)}" if path.is_dir() else self.model

    @property
    def missing(self) -> str:
        """Weights that are neither a folder nor in the hub's cache."""
        hub = import_optional("huggingface_hub", "hub")
        if self.model == RANDOM or Path(self.model).is_dir() or hub.try_to_load_from_cache(self.model, "config.json"):
            return ""
        return f"no weights of {self.model} on this machine; `dtm-codec evaluate {self.name}` fetches them"

    def to(self, device: str) -> NeuralCodec:
        check_device(device)
        self.device = device
        return self

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.network.parameters())

    @cached_property
    def network(self) -> Any:
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                network = self.untrained() if self.model == RANDOM else self.pretrained()
        except DTMCodecError:  # a package that is missing, by name
            raise
        except (OSError, ValueError):  # what the hub client and the loaders raise
            plain = self.name.partition("?")[0]
            raise ModelError(f"no weights {self.model!r} on disk or hub; give {plain}?model=FOLDER") from None
        return network.eval().requires_grad_(False).to(self.device)

    @abstractmethod
    def untrained(self) -> Any:
        """The published architecture with random weights."""

    @abstractmethod
    def pretrained(self) -> Any:
        """The network of folder or hub id."""

    @property
    def sample_rate(self) -> int:
        return int(self.network.config.sampling_rate)

    @abstractmethod
    def codes(self, audio: Tensor) -> list[Tensor]:
        """audio: (1, 1, T) -> integer codes"""

    @abstractmethod
    def audio(self, codes: list[Tensor]) -> Tensor:
        """Codes to samples, any shape."""

    @property
    def codebook_size(self) -> int:
        return int(self.network.config.codebook_size)

    def encode(self, audio: Samples) -> Coded:
        """Codes, each counted as log2 of the codebook's size."""
        with torch.inference_mode():
            resampled = torch.from_numpy(resample(audio, SAMPLE_RATE, self.sample_rate))
            codes = self.codes(resampled[None, None].to(self.device))
        bits = sum(part.numel() for part in codes) * math.ceil(math.log2(self.codebook_size))
        return Coded(codes, audio.size, Bits(bits, 0), bits)

    def decode(self, coded: Coded) -> Samples:
        """Back to 16 kHz and to the utterance's length."""
        with torch.inference_mode():
            samples = self.audio(coded.payload).reshape(-1).float().cpu().numpy()
        return fit(resample(samples, self.sample_rate, SAMPLE_RATE), coded.num_samples)


class _TransformersCodec(NeuralCodec):
    model_class: ClassVar[str]
    config_class: ClassVar[str]
    published: ClassVar[dict[str, Any]] = {}
    """Where the published model differs from the defaults of its configuration class."""

    def untrained(self) -> Any:
        transformers = import_optional("transformers")
        return getattr(transformers, self.model_class)(getattr(transformers, self.config_class)(**self.published))

    def pretrained(self) -> Any:
        return getattr(import_optional("transformers"), self.model_class).from_pretrained(self.model)

    def codebooks(self, there: int) -> int:
        """How many of a network's codebooks are asked for."""
        if self.value > there:
            raise ConfigError(f"{self.name}; allowed: 1 ... {there} codebooks")
        return int(self.value)


class EnCodec(_TransformersCodec):
    """EnCodec, 24 kHz (Défossez 2022)."""

    kind, hub_id, setting, default = "EnCodec", "facebook/encodec_24khz", "kbps", 1.5
    model_class, config_class = "EncodecModel", "EncodecConfig"

    def codes(self, audio: Tensor) -> list[Tensor]:
        allowed = self.network.config.target_bandwidths
        if self.value not in allowed:
            raise ConfigError(f"{self.name}; allowed: {', '.join(f'encodec:{b:g}' for b in allowed)}")
        return [self.network.encode(audio, bandwidth=self.value).audio_codes]

    def audio(self, codes: list[Tensor]) -> Tensor:
        """One chunk, no scale: the 24 kHz model's way."""
        output: Tensor = self.network.decode(codes[0], [None]).audio_values
        return output


class DAC(_TransformersCodec):
    """Descript Audio Codec, 16 kHz (Kumar 2023); the argument is the number of codebooks."""

    kind, hub_id, setting, default = "DAC", "descript/dac_16khz", CODEBOOKS, 12
    model_class, config_class = "DacModel", "DacConfig"
    published: ClassVar[dict[str, Any]] = {
        "downsampling_ratios": [2, 4, 5, 8],
        "n_codebooks": 12,
        "sampling_rate": 16_000,
    }

    def codes(self, audio: Tensor) -> list[Tensor]:
        """Whole hops, the first codebooks."""
        padded = torch.nn.functional.pad(audio, (0, -audio.shape[-1] % self.network.config.hop_length))
        wanted = self.codebooks(self.network.config.n_codebooks)
        return [self.network.encode(padded, n_quantizers=wanted).audio_codes]

    def audio(self, codes: list[Tensor]) -> Tensor:
        output: Tensor = self.network.decode(audio_codes=codes[0]).audio_values
        return output


class Mimi(_TransformersCodec):
    """Mimi, 24 kHz, 12.5 Hz (Défossez 2024); the argument is the number of codebooks."""

    kind, hub_id, setting, default = "Mimi", "kyutai/mimi", CODEBOOKS, 8
    model_class, config_class = "MimiModel", "MimiConfig"
    published: ClassVar[dict[str, Any]] = {"frame_rate": 12.5}

    def codes(self, audio: Tensor) -> list[Tensor]:
        wanted = self.codebooks(self.network.config.num_quantizers)
        return [self.network.encode(audio, num_quantizers=wanted).audio_codes]

    def audio(self, codes: list[Tensor]) -> Tensor:
        output: Tensor = self.network.decode(codes[0]).audio_values
        return output


class XCodec(_TransformersCodec):
    """X-Codec, 16 kHz, with HuBERT features (Ye 2024)."""

    kind, hub_id, setting, default = "X-Codec", "hf-audio/xcodec-hubert-librispeech", "kbps", 1.0
    model_class, config_class = "XcodecModel", "XcodecConfig"

    @property
    def sample_rate(self) -> int:
        return int(self.network.config.sample_rate)

    def codes(self, audio: Tensor) -> list[Tensor]:
        allowed = self.network.config.target_bandwidths
        if self.value not in allowed:
            raise ConfigError(f"{self.name}; allowed: {', '.join(f'xcodec:{b:g}' for b in allowed)}")
        padded = torch.nn.functional.pad(audio, (0, -audio.shape[-1] % self.network.config.hop_length))
        return [self.network.encode(padded, bandwidth=self.value).audio_codes]

    def audio(self, codes: list[Tensor]) -> Tensor:
        output: Tensor = self.network.decode(codes[0]).audio_values
        return output


class SNAC(NeuralCodec):
    """SNAC, three codebooks at 12, 23 and 47 Hz (Siuzdak 2024); the argument is its rate in kHz: 24, 32 or 44."""

    kind, setting, default = "SNAC", "kHz", 24
    hub_id = "hubertsiuzdak/snac_24khz"
    published: ClassVar[dict[str, Any]] = {
        "sampling_rate": 24_000,
        "encoder_dim": 48,
        "encoder_rates": [2, 4, 8, 8],
        "decoder_dim": 1024,
        "decoder_rates": [8, 8, 4, 2],
        "attn_window_size": None,
        "vq_strides": [4, 2, 1],
    }

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        if self.value not in (24, 32, 44) or (self.model == RANDOM and self.value != 24):
            raise ConfigError(f"{self.name}; allowed: snac:24, snac:32, snac:44, and snac:24?model=random")
        if "model" not in spec.options:
            self.model = f"hubertsiuzdak/snac_{self.value:g}khz"

    def untrained(self) -> Any:
        return import_optional("snac").SNAC(**self.published)

    def pretrained(self) -> Any:
        return import_optional("snac").SNAC.from_pretrained(self.model)

    @property
    def sample_rate(self) -> int:
        return int(self.network.sampling_rate)

    @property
    def codebook_size(self) -> int:
        return int(self.network.codebook_size)

    def codes(self, audio: Tensor) -> list[Tensor]:
        """One tensor per codebook, of different lengths."""
        return list(self.network.encode(audio))

    def audio(self, codes: list[Tensor]) -> Tensor:
        output: Tensor = self.network.decode(codes)
        return output
