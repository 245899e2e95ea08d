"""What a codec is made of: frozen, validated configurations and a preset for every row the paper trains.

A configuration is the whole description of a network. `CodecConfig.from_dict` refuses unknown keys and
impossible values, naming the field, the value and what is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .errors import ConfigError
from .layout import Layout
from .validation import Validated, read_json, require

SelectorName = Literal["ple", "stride", "random", "threshold", "peaks", "greedy", "dp", "lagrangian"]
SelectorFeatures = Literal["z1", "logmel"]
Distance = Literal["cosine", "l2"]
Downsampler = Literal["pack", "average", "conv"]
Upsampler = Literal["mask", "repeat", "conv"]
SpectralFeatures = Literal["complex", "complex+logmag", "complex+logmag+pitch"]
Stage2Positions = Literal["time", "rank"]
Head = Literal["istft", "source-filter"]
QuantizerKind = Literal["vq", "fsq"]
Stack = Literal["enc1", "enc2", "dec1", "dec2"]
BackendName = Literal["torch", "onnx", "onnx-int8"]
"""What computes a network: PyTorch or onnxruntime, the latter also with matrices in 8 bits."""

Quality = Literal["low", "normal", "high"]
"""A bitrate by name (`rate/request.py`)."""
DEFAULT_QUALITY: Quality = "normal"
"""Of files and of the demo page, where nothing is asked for."""

STACKS: tuple[Stack, ...] = ("enc1", "enc2", "dec1", "dec2")

LOWEST_PITCH, HIGHEST_PITCH = 55.0, 500.0
"""Hertz between which a voice's pitch is looked for."""

PITCH_BINS = 160
"""From the lowest to the highest pitch, evenly spaced in log frequency: 0.24 semitones apart."""

NOISE_FRAMES = 1024
"""Frames after which the noise of a source-filter head repeats itself."""

COMPRESSION = 0.3
"""Power law on STFT magnitudes, which spreads the range of speech as hearing does."""

MAX_MAGNITUDE = 1e2
"""Predicted magnitudes are clipped here, as in Vocos, to keep exp() from exploding early in training."""

SELECTOR_MELS = 40
"""Bands of the log-mel spectrogram that a selector may look at instead of z1."""

MAX_NAME_LENGTH = 9
"""Every file carries the name of its model: nine letters of an alphabet of 40 take six bytes."""

MAX_STRIDE = 255
"""Steps per token of a fixed-rate stream: one byte of a file's header."""

QUANTIZED_AT_ONCE = 64
"""Vectors compared with the codebook at a time: their similarities (4 MB at 16 384 codes) stay near the cache."""

LARGEST = {
    "dim": 8192,
    "heads": 128,
    "mlp_hidden": 65_536,
    **{f"{stack}_layers": 128 for stack in STACKS},
    "window": 1024,
}
"""Far beyond any model for speech; a configuration from elsewhere must not ask for all memory."""

LARGEST_SPAN = 10_000
LARGEST_SEGMENT = 255
"""Longest span that dp and lagrangian search. dp notes each in a byte."""
LARGEST_CODE_DIM = 1024
LOWEST_KEEP_RATIO = 1e-3

BITRATES = "trained_bitrates"
"""Key of config.json beside those of the network. It does not change the network, so model ids leave it out."""

MODEL_TYPE, NESTED = "dtm_codec", "codec"
"""What `model_type` is in config.json of a folder for transformers, and the key under which such a folder keeps what is
all of config.json elsewhere."""

Bitrates: TypeAlias = tuple[float, float]
"""Total bits a second between which a model was trained."""

_NAME = re.compile(rf"[a-z0-9.\-]{{1,{MAX_NAME_LENGTH}}}")


@dataclass(frozen=True)
class SelectorConfig(Validated):
    """Which Stage-1 frames are kept (paper Section 3.3 and Table 6). The selector can be swapped at inference."""

    name: SelectorName = "ple"
    """ple | stride | random | threshold | peaks | greedy | dp | lagrangian"""
    s_max: int | None = None
    """Longest span of one kept token in frames; None sets no limit (dp and lagrangian need one)."""
    features: SelectorFeatures = "z1"
    """What the selector looks at: Stage-1 vectors (the paper) or a 40-band log-mel spectrogram."""
    distance: Distance = "cosine"
    """PLE's step length."""
    first_crossing: bool = False
    """PLE: a jump over several multiples of tau keeps one frame instead of several in a row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name in ("dp", "lagrangian"):
            fits = self.s_max is not None and 1 <= self.s_max <= LARGEST_SEGMENT
            require(fits, "selector.s_max", self.s_max, f"1 ... {LARGEST_SEGMENT} with {self.name!r}")
        allowed = f"1 ... {LARGEST_SPAN} or null"
        require(self.s_max is None or 1 <= self.s_max <= LARGEST_SPAN, "selector.s_max", self.s_max, allowed)


@dataclass(frozen=True)
class QuantizerConfig(Validated):
    """The bottleneck (paper Section 3.1.3)."""

    kind: QuantizerKind = "vq"
    """vq: one cosine codebook; fsq: finite scalar quantization"""
    codebook_size: int = 16_384
    """Number of codes; for FSQ the product of `levels`."""
    dim: int = 8
    """Width of the VQ codebook's vectors."""
    levels: tuple[int, ...] = ()
    """FSQ levels per dimension; empty for VQ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(2 <= self.codebook_size <= 1 << 24, "quantizer.codebook_size", self.codebook_size, "2 ... 16777216")
        require(1 <= self.dim <= LARGEST_CODE_DIM, "quantizer.dim", self.dim, f"1 ... {LARGEST_CODE_DIM}")
        if self.kind == "fsq":
            fits = 1 <= len(self.levels) <= 24 and min(self.levels) >= 2
            require(fits, "quantizer.levels", self.levels, "1 to 24 levels, >= 2 each")
            product = math.prod(self.levels)
            require(
                product == self.codebook_size,
                "quantizer.codebook_size",
                self.codebook_size,
                f"{product}, the product of the levels",
            )
        else:
            require(not self.levels, "quantizer.levels", self.levels, "none with kind 'vq'")

    @property
    def token_bits(self) -> int:
        """b of Eq. 5: whole bits that hold one code (16 for the 64 000 codes of the FSQ control)."""
        return (self.codebook_size - 1).bit_length()


@dataclass(frozen=True)
class CodecConfig(Validated):
    """A codec network, front end to back end. The defaults are the paper's VFR model at 50 Hz (800 bps)."""

    name: str = "vfr-50"
    """Short name, written into every file; letters a-z, digits, '.' and '-'."""
    sample_rate: int = 16_000
    hop_length: int = 160
    """STFT hop in samples; sample_rate / hop_length is the Stage-1 frame rate. The window is 4 hops."""
    spectral_features: SpectralFeatures = "complex"
    """What the front end projects: compressed real and imaginary parts, or these with the log-magnitude,
    or with that and the salience of every pitch."""
    dim: int = 512
    heads: int = 4
    mlp_hidden: int = 1600
    """SwiGLU width: 1600 with the linear front end gives the paper's 127 M parameters."""
    enc1_layers: int = 6
    enc2_layers: int = 12
    dec1_layers: int = 12
    dec2_layers: int = 6
    window: int = 64
    """Attention reaches this many steps to each side."""
    enc1_lookahead: int | None = None
    """Steps of Stage 1, in time, that each layer of Enc1 may look ahead: 0 is causal, null as far as the window."""
    enc2_lookahead: int | None = None
    """The same for Enc2, which sees kept steps: those up to this many steps of Stage 1 later."""
    dec1_lookahead: int | None = None
    dec2_lookahead: int | None = None
    norm_eps: float = 1e-2
    """RMSNorm epsilon: large, because quiet input has small activations."""
    rope_base: float = 10_000.0
    layer_scale: float = 1.0
    """Initial LayerScale (TAAE starts at 1e-5, the paper's author at 1)."""
    stage2_positions: Stage2Positions = "time"
    """RoPE positions of kept tokens: their frame index, or their rank among the kept."""
    downsampler: Downsampler = "pack"
    upsampler: Upsampler = "mask"
    head: Head = "istft"
    """What turns vectors into sound: free magnitudes and phases, or shaped pulses of a predicted pitch and noise."""
    keep_ratio: float = 0.5
    """Share of Stage-1 frames kept that training steers tau to; FFR keeps every round(1 / keep_ratio)-th."""
    selector: SelectorConfig = field(default_factory=SelectorConfig)
    quantizer: QuantizerConfig = field(default_factory=QuantizerConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            _NAME.fullmatch(self.name) is not None, "name", self.name, f"1 to {MAX_NAME_LENGTH} of a-z, 0-9, '.', '-'"
        )
        require(8_000 <= self.sample_rate <= 48_000, "sample_rate", self.sample_rate, "8000 ... 48000")
        require(
            8 <= self.hop_length <= 4096 and self.hop_length % 2 == 0, "hop_length", self.hop_length, "even, 8 ... 4096"
        )
        for name, largest in LARGEST.items():
            require(1 <= getattr(self, name) <= largest, name, getattr(self, name), f"1 ... {largest}")
        for stack in STACKS:
            ahead = self.lookahead(stack)
            require(
                ahead is None or 0 <= ahead <= self.window,
                f"{stack}_lookahead",
                ahead,
                f"0 ... {self.window}, the window, or null",
            )
            if self.stage2_positions == "rank" and stack in ("enc2", "dec1"):
                # ranks do not say how far apart two tokens are in time
                require(not ahead, f"{stack}_lookahead", ahead, "0 or null with stage2_positions 'rank'")
        require(self.dim % (2 * self.heads) == 0, "dim", self.dim, f"a multiple of 2 x heads = {2 * self.heads}")
        for name in ("norm_eps", "rope_base", "layer_scale"):
            value = getattr(self, name)
            require(math.isfinite(value) and value > 0, name, value, "> 0")
        if self.spectral_features == "complex+logmag+pitch" or self.head == "source-filter":
            shortest = math.ceil(self.sample_rate / LOWEST_PITCH / 4) + 2
            require(self.hop_length >= shortest, "hop_length", self.hop_length, f">= {shortest} to hear a pitch")
        lowest = LOWEST_KEEP_RATIO
        require(lowest <= self.keep_ratio <= 1, "keep_ratio", self.keep_ratio, f"{lowest} ... 1")
        if self.is_fixed_rate:
            require(self.stride <= MAX_STRIDE, "keep_ratio", self.keep_ratio, f">= 1 / {MAX_STRIDE} at a fixed rate")
        if self.selector.s_max is not None:
            shortest = self.stride if self.is_fixed_rate else math.ceil(1 / self.keep_ratio)
            require(
                self.selector.s_max >= shortest,
                "selector.s_max",
                self.selector.s_max,
                f">= {shortest} with keep_ratio = {self.keep_ratio:g}",
            )
        conv = (self.downsampler == "conv", self.upsampler == "conv")
        require(conv[0] == conv[1], "upsampler", self.upsampler, f"to match downsampler {self.downsampler!r}")
        if conv[0]:
            require(self.is_fixed_rate, "selector.name", self.selector.name, "'stride' with conv resampling")

    def layers(self, stack: Stack) -> int:
        """Blocks of one of the four stacks."""
        layers: int = getattr(self, f"{stack}_layers")
        return layers

    def lookahead(self, stack: Stack) -> int | None:
        """Steps that each block of a stack may look ahead; None: as far as the window."""
        steps: int | None = getattr(self, f"{stack}_lookahead")
        return steps

    @property
    def unlimited(self) -> CodecConfig:
        """The same network with all of its window ahead."""
        return replace(self, enc1_lookahead=None, enc2_lookahead=None, dec1_lookahead=None, dec2_lookahead=None)

    def reach(self, stack: Stack) -> int:
        """Steps to each side that an output of a stack can depend on."""
        return self.layers(stack) * self.window

    @property
    def n_fft(self) -> int:
        """STFT window and FFT length: four hops."""
        return 4 * self.hop_length

    @property
    def frame_rate(self) -> float:
        """f_S1, Stage-1 frames a second."""
        return self.sample_rate / self.hop_length

    @property
    def is_fixed_rate(self) -> bool:
        """FFR: positions are known beforehand, so no mask is sent."""
        return self.selector.name == "stride"

    @property
    def is_steered(self) -> bool:
        """Whether there is a tau to steer: a stride and Bernoulli draws have theirs from the keep ratio."""
        return self.selector.name not in ("stride", "random")

    @property
    def stride(self) -> int:
        """Frames per token of a fixed-rate codec."""
        return round(1 / self.keep_ratio)

    @property
    def layout(self) -> Layout:
        """How streams are laid out with the model's own selector."""
        stride = self.stride if self.is_fixed_rate else None
        return Layout(self.sample_rate, self.hop_length, self.quantizer.token_bits, stride)


def _paper_presets() -> dict[str, CodecConfig]:
    """Every model that the paper trains, by short name."""
    vq14 = QuantizerConfig(codebook_size=16_384)
    vq16 = QuantizerConfig(codebook_size=65_536)
    stride = SelectorConfig(name="stride")
    base = CodecConfig()
    presets: dict[str, CodecConfig] = {}
    for token_rate, hop in ((25, 320), (40, 200), (50, 160), (80, 100)):
        vfr = replace(base, name=f"vfr-{token_rate}", hop_length=hop, quantizer=vq14)
        ffr = replace(vfr, name=f"ffr-{token_rate}", selector=stride, quantizer=vq16)
        presets |= {vfr.name: vfr, ffr.name: ffr}
    ffr = presets["ffr-50"]
    fsq = QuantizerConfig(kind="fsq", codebook_size=64_000, levels=(5, 5, 5, 8, 8, 8))
    controls = [
        replace(ffr, name="ffr-57", hop_length=140, quantizer=vq14),  # 57.14 Hz x 14 bits = 800 bps
        replace(ffr, name="ffr-fsq", quantizer=fsq),
        replace(ffr, name="conv", downsampler="conv", upsampler="conv"),
        replace(base, name="avgrep", downsampler="average", upsampler="repeat"),
        replace(base, name="packrep", upsampler="repeat"),
        replace(base, name="avgmask", downsampler="average"),
        replace(base, name="random", selector=SelectorConfig(name="random")),
    ]
    return presets | {config.name: config for config in controls}


def _small(config: CodecConfig) -> CodecConfig:
    """The same experiment at a size that two CPU cores can train: narrower and shallower, and with a head that need not
    learn from tokens how phases turn (docs/experiments.md has what was tried)."""
    return replace(
        config,
        name=f"s-{config.name}",
        spectral_features="complex+logmag+pitch",
        head="source-filter",
        dim=256,
        mlp_hidden=704,
        enc1_layers=2,
        enc2_layers=4,
        dec1_layers=4,
        dec2_layers=2,
    )


PAPER_PRESETS: Mapping[str, CodecConfig] = _paper_presets()
"""The paper's models, 127 M parameters each."""

SMALL_PRESETS: Mapping[str, CodecConfig] = {c.name: c for c in map(_small, PAPER_PRESETS.values())}
"""Twins of the paper's models for CPU, about 10 M parameters each."""

PRESETS: Mapping[str, CodecConfig] = {**PAPER_PRESETS, **SMALL_PRESETS}


def preset(name: str) -> CodecConfig:
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]


def read_model_config(path: Path) -> tuple[CodecConfig, Bitrates | None]:
    """What config.json of a model says: the network, and the rates that it was trained at where that is known."""
    values = read_json(path)
    if isinstance(values, dict) and values.get("model_type") == MODEL_TYPE:
        values = values.get(NESTED)
    try:
        return model_config(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def model_config(values: Any) -> tuple[CodecConfig, Bitrates | None]:
    plain = dict(values) if isinstance(values, dict) else values
    bitrates = _bitrates(plain.pop(BITRATES, None)) if isinstance(plain, dict) else None
    return CodecConfig.from_dict(plain), bitrates


def config_values(config: CodecConfig, bitrates: Bitrates | None) -> dict[str, Any]:
    """Inverse of `model_config`."""
    return config.to_dict() | ({} if bitrates is None else {BITRATES: list(bitrates)})


def _bitrates(value: Any) -> Bitrates | None:
    if value is None:
        return None
    numbers = isinstance(value, list) and len(value) == 2 and all(type(x) in (int, float) for x in value)
    if not numbers or not 0 < value[0] <= value[1] < math.inf:
        raise ConfigError(f"{BITRATES} = {value!r}; allowed: the lowest and the highest number of bits a second")
    return float(value[0]), float(value[1])
