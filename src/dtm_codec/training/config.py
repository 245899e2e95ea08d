"""A training run as data: validated, from YAML files that inherit from each other and `key=value` overrides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from ..config import CodecConfig, preset, read_model_config
from ..errors import ConfigError
from ..models import hub
from ..validation import Validated, parse_yaml, read_yaml, require

Logger = Literal["tensorboard", "wandb"]
Strategy = Literal["auto", "ddp", "fsdp"]
FabricPrecision = Literal["32-true", "bf16-mixed"]
Precision = Literal["auto", "32-true", "bf16-mixed"]


@dataclass(frozen=True)
class DataConfig(Validated):
    train: str | None = None
    """Folder of audio, JSON-lines manifest, or tar shards ('shards/train-{0000..0099}.tar')."""
    dev: str | None = None
    """Folder or manifest of utterances for the dev scores; without it there are none."""
    crop_seconds: float = 4.0
    batch_size: int = 64
    """Crops a step over all processes."""
    gain_db: tuple[float, ...] = (0.0, 0.0)
    """Each crop's level is changed by a random number of decibels between these two, without clipping."""
    ram_gigabytes: float = 4.0
    """A corpus whose 16-bit samples fit in this is decoded once and held in memory."""
    workers: int = 4
    """Processes that read crops ahead when the corpus is not in memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0.2 <= self.crop_seconds <= 600, "data.crop_seconds", self.crop_seconds, "0.2 ... 600")
        require(self.batch_size >= 1, "data.batch_size", self.batch_size, ">= 1")
        low_high = len(self.gain_db) == 2 and -60 <= self.gain_db[0] <= self.gain_db[1] <= 60
        require(low_high, "data.gain_db", list(self.gain_db), "[low, high] within -60 ... 60")
        require(self.ram_gigabytes >= 0, "data.ram_gigabytes", self.ram_gigabytes, ">= 0")
        require(self.workers >= 0, "data.workers", self.workers, ">= 0")


@dataclass(frozen=True)
class OptimizerConfig(Validated):
    """AdamW with a linear warm-up and a linear decay, for generator and discriminators alike."""

    lr: float = 1e-4
    min_lr: float = 1e-5
    """Learning rate from `decay_steps` on."""
    warmup_steps: int = 1_000
    decay_start: int = 0
    """Step up to which the learning rate stays at `lr`; from there on it falls."""
    decay_steps: int = 500_000
    """Step at which the learning rate has come down to `min_lr`."""
    betas: tuple[float, ...] = (0.8, 0.9)
    weight_decay: float = 0.01
    clip: float = 1.0
    """Largest norm of a gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lr", "min_lr", "clip"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"optimizer.{name}", value, "> 0")
        require(self.min_lr <= self.lr, "optimizer.min_lr", self.min_lr, f"at most lr = {self.lr:g}")
        require(self.warmup_steps >= 0, "optimizer.warmup_steps", self.warmup_steps, ">= 0")
        require(self.decay_start >= 0, "optimizer.decay_start", self.decay_start, ">= 0")
        allowed = f"> warmup_steps = {self.warmup_steps} and decay_start = {self.decay_start}"
        require(self.decay_steps > self._falls_from, "optimizer.decay_steps", self.decay_steps, allowed)
        valid = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(valid, "optimizer.betas", list(self.betas), "two numbers, 0 <= beta < 1")
        require(0 <= self.weight_decay < 1, "optimizer.weight_decay", self.weight_decay, "0 <= weight_decay < 1")

    def lr_at(self, step: int) -> float:
        """Learning rate of that step, counted from 0."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        progress = max(0, step - self._falls_from) / (self.decay_steps - self._falls_from)
        return max(self.min_lr, self.lr + (self.min_lr - self.lr) * progress)

    @property
    def _falls_from(self) -> int:
        return max(self.warmup_steps, self.decay_start)


@dataclass(frozen=True)
class LossConfig(Validated):
    mel: float = 15.0
    mel_windows: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048)
    """Window lengths of the mel distance in samples, DAC's seven. Those shorter than a pitch period hear single pulses,
    whose place a source-filter head does not choose."""
    adversarial: float = 1.0
    feature_matching: float = 1.0
    quantizer: float = 1.0
    pitch: float = 1.0
    spectral: float = 0.0
    """Distance of power-law magnitudes, all frequencies alike: it counts loud parts more than the mel distance does."""
    words: float = 0.0
    """Distance in the first layers of a speech recogniser (`words_model`)."""
    words_model: str | None = None
    """Folder of a Whisper model, as transformers or CTranslate2 save it."""
    words_layers: int = 2
    """Encoder blocks of it that are looked at."""
    speaker: float = 0.0
    """Distance of speaker vectors (`speaker_model`)."""
    speaker_model: str | None = None
    """`pretrained.pt` of Resemblyzer."""
    listen_every: int = 1
    """Words and speaker take turns: each is looked at every so many steps."""
    limit: float = 1e4
    """A total loss above this counts as exploded and stops the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = ("mel", "adversarial", "feature_matching", "quantizer", "pitch", "spectral", "words", "speaker")
        for name in weights:
            require(0 <= getattr(self, name) < math.inf, f"loss.{name}", getattr(self, name), ">= 0")
        for name in ("words", "speaker"):
            model, weight = getattr(self, f"{name}_model"), getattr(self, name)
            require(weight == 0 or model is not None, f"loss.{name}_model", model, f"a path if loss.{name} > 0")
        require(self.words_layers >= 1, "loss.words_layers", self.words_layers, ">= 1")
        require(self.listen_every >= 1, "loss.listen_every", self.listen_every, ">= 1")
        windows = list(self.mel_windows)
        allowed = "powers of 2 in 32 ... 8192"
        require(
            bool(windows) and all(32 <= w <= 8192 and w.bit_count() == 1 for w in windows),
            "loss.mel_windows",
            windows,
            allowed,
        )
        require(self.limit > 0, "loss.limit", self.limit, "> 0")


@dataclass(frozen=True)
class DiscriminatorConfig(Validated):
    """The discriminators, and how much time they may take."""

    start: int = 0
    """First step with discriminators; until then the generator learns from the other losses alone."""
    warmup_steps: int = 0
    """Steps from there on in which the discriminators learn alone and the generator waits."""
    every: int = 1
    """Discriminators learn and judge every so many steps."""
    crop_seconds: float | None = None
    """They look at a random stretch of this length of each crop; None: at all of it."""
    lr: float | None = None
    """Constant learning rate of the discriminators; None: the generator's."""
    periods: tuple[int, ...] = (2, 3, 5, 7, 11)
    period_channels: tuple[int, ...] = (32, 128, 512, 1024, 1024)
    stft_sizes: tuple[int, ...] = (2048, 1024, 512, 256, 128)
    stft_channels: int = 32
    stft_power: float = 1.0
    """Magnitudes of their spectrograms are raised to this: below 1, quiet parts count more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.start >= 0, "discriminator.start", self.start, ">= 0")
        require(self.warmup_steps >= 0, "discriminator.warmup_steps", self.warmup_steps, ">= 0")
        require(self.every >= 1, "discriminator.every", self.every, ">= 1")
        if self.crop_seconds is not None:
            require(self.crop_seconds >= 0.2, "discriminator.crop_seconds", self.crop_seconds, ">= 0.2 or null")
        require(all(p >= 1 for p in self.periods), "discriminator.periods", list(self.periods), "numbers >= 1")
        channels = list(self.period_channels)
        require(bool(channels) and min(channels) >= 1, "discriminator.period_channels", channels, "numbers >= 1")
        sizes = list(self.stft_sizes)
        require(all(64 <= s <= 4096 for s in sizes), "discriminator.stft_sizes", sizes, "numbers in 64 ... 4096")
        require(self.stft_channels >= 1, "discriminator.stft_channels", self.stft_channels, ">= 1")
        require(0 < self.stft_power <= 1, "discriminator.stft_power", self.stft_power, "in (0, 1]")
        require(self.lr is None or self.lr > 0, "discriminator.lr", self.lr, "> 0 or null")
        require(bool(self.periods or self.stft_sizes), "discriminator.periods", [], "some, if there are no stft_sizes")

    def learns_alone(self, step: int) -> bool:
        return self.start <= step < self.start + self.warmup_steps

    def judges(self, step: int) -> bool:
        """Whether that step has discriminators. It does if it completes a multiple of `every` steps, so that a
        `log_every` that is one too shows them."""
        return step >= self.start and (step + 1) % self.every == 0


@dataclass(frozen=True)
class ControllerConfig(Validated):
    """How tau is steered to the keep ratio (paper Section 3.3)."""

    momentum: float = 0.95
    eta0: float = 0.1
    decay_steps: float = 1_000.0
    """T of eta_t = eta0 / sqrt(1 + t / T)."""
    every: int = 1
    """U_ctrl: steps between two changes of tau."""
    jitter: float = 0.0
    """Each step runs at tau times a random factor from exp(-jitter) to exp(jitter): one model for many bitrates.
    Factors near 1 are drawn most often (a triangle), so that the model is best at its own rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.momentum < 1, "controller.momentum", self.momentum, "0 <= momentum < 1")
        require(self.eta0 >= 0, "controller.eta0", self.eta0, ">= 0")
        require(self.decay_steps > 0, "controller.decay_steps", self.decay_steps, "> 0")
        require(self.every >= 1, "controller.every", self.every, ">= 1")
        require(0 <= self.jitter <= 3, "controller.jitter", self.jitter, "0 ... 3")


@dataclass(frozen=True)
class PacketLossConfig(Validated):
    """Tokens that do not arrive: the decoder learns to fill their steps, for streams over bad connections."""

    share: float = 0.0
    """Each crop loses a random share of its steps, from none to this."""
    burst_ms: float = 160.0
    """In bursts of random lengths up to this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.share < 1, "packet_loss.share", self.share, "0 <= share < 1")
        require(0 < self.burst_ms <= 2000, "packet_loss.burst_ms", self.burst_ms, "0 < burst_ms <= 2000")


@dataclass(frozen=True)
class TrainConfig(Validated):
    """Everything that decides what a run computes. The defaults are the paper's (Section 4.1)."""

    model: CodecConfig = field(default_factory=CodecConfig)
    """In YAML: the name of a preset, or `{preset: NAME, ...}` with the fields that differ. `{like: MODEL, ...}` takes
    the configuration of a trained model, by its name or folder, for fine-tuning."""
    init_from: str | None = None
    """Start from the weights of this exported folder or checkpoint, as far as they fit (fine-tuning)."""
    train_only: tuple[str, ...] = ()
    """Only weights whose names begin with one of these learn; none given: all do. The tensors of a model folder have
    these names."""
    seed: int = 0
    max_steps: int = 600_000
    """Generator steps."""
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    discriminator: DiscriminatorConfig = field(default_factory=DiscriminatorConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    packet_loss: PacketLossConfig = field(default_factory=PacketLossConfig)
    lookahead_share: float = 1.0
    """Share of the steps that keep the model's limits of look-ahead and lose packets. The others see the whole window
    and lose nothing, so that one set of weights serves streams and files."""
    ema_decay: float = 0.999
    """Moving average of the weights, used for dev scores and export; it is shorter over the first steps."""
    quantize_from: int = 0
    """First step that quantizes; until then vectors pass the bottleneck as they are and the codebook follows them."""
    revive_after: int = 0
    """A code unused for this many steps is moved to where the encoder's vectors are; 0: never, as in the paper's
    lineage (BigCodec, DAC)."""

    precision: Precision = "bf16-mixed"
    """auto: 16-bit products where they are faster, measured at the start of a run."""
    accelerator: str = "auto"
    """Fabric's: auto, cpu, cuda, ... (not mps, which has no 64-bit numbers)"""
    devices: int | None = None
    """Processes on each machine; None: one for every device there is."""
    num_nodes: int = 1
    strategy: Strategy = "auto"
    """What each process holds. ddp: the whole model, as much as the paper's needs; fsdp: its share of all weights,
    gradients and moments, for models that fill a GPU; auto: ddp if there are several processes."""
    compile: bool = False
    """Compile the generator with torch.compile."""

    log_every: int = 50
    """Steps between two lines of metrics."""
    checkpoint_every: int = 5_000
    """Steps between two checkpoints."""
    checkpoint_minutes: float = 15.0
    """And minutes between two, whichever comes first."""
    keep_every: int = 100_000
    """A checkpoint at a multiple of this many steps is kept for good and exported; of the others the last two are."""
    dev_every: int = 5_000
    """Steps between two evaluations on dev utterances."""
    dev_utterances: int = 16
    dev_metrics: tuple[str, ...] = ("pesq", "stoi", "mel")
    """As `dtm-codec evaluate` names them."""
    token_minutes: float = 60.0
    """The finished model gets the token statistics of this much training speech, for compact files; 0: none."""
    loggers: tuple[Logger, ...] = ("tensorboard",)
    """Beside metrics.jsonl, which is always written."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.seed < 1 << 32, "seed", self.seed, "0 ... 4294967295")
        require(0 <= self.lookahead_share <= 1, "lookahead_share", self.lookahead_share, "0 ... 1")
        require(0 <= self.ema_decay < 1, "ema_decay", self.ema_decay, "0 <= ema_decay < 1")
        require(self.revive_after >= 0, "revive_after", self.revive_after, ">= 0")
        require(self.quantize_from >= 0, "quantize_from", self.quantize_from, ">= 0")
        positive = ("max_steps", "num_nodes", "log_every", "checkpoint_every", "keep_every", "dev_every")
        for name in positive:
            require(getattr(self, name) >= 1, name, getattr(self, name), ">= 1")
        require(self.devices is None or self.devices >= 1, "devices", self.devices, ">= 1 or null")
        require(self.checkpoint_minutes > 0, "checkpoint_minutes", self.checkpoint_minutes, "> 0")
        require(self.token_minutes >= 0, "token_minutes", self.token_minutes, ">= 0")
        require(self.dev_utterances >= 0, "dev_utterances", self.dev_utterances, ">= 0")
        require(self.crop_samples > 1024, "data.crop_seconds", self.data.crop_seconds, "over 1024 samples")
        if self.packet_loss.share:
            require(
                self.model.upsampler == "mask", "packet_loss.share", self.packet_loss.share, "0 without upsampler mask"
            )
        judged = self.discriminator.crop_seconds
        if judged is not None:
            allowed = f"at most data.crop_seconds = {self.data.crop_seconds}"
            require(judged <= self.data.crop_seconds, "discriminator.crop_seconds", judged, allowed)

    @property
    def crop_samples(self) -> int:
        """Length of a crop: whole hops."""
        hop = self.model.hop_length
        return round(self.data.crop_seconds * self.model.sample_rate / hop) * hop


def load_config(path: str | PathLike[str], overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a run from YAML. `base: FILE` inherits; `overrides` are `dotted.key=value`, the value being YAML."""
    plain = _read(Path(path), ())
    for override in overrides:
        plain = _merge(plain, _parse_override(override))
    return TrainConfig.from_dict({**plain, "model": _resolve_model(plain.get("model", {}))})


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in seen:
        raise ConfigError(f"{path} inherits from itself")
    plain = read_yaml(path) or {}
    if not isinstance(plain, dict):
        raise ConfigError(f"{path}: expected a mapping, got {plain!r}")
    base = plain.pop("base", None)
    if base is None:
        return plain
    return _merge(_read(path.parent / str(base), (*seen, path.resolve())), plain)


def _parse_override(override: str) -> dict[str, Any]:
    """'optimizer.lr=1e-4' -> {'optimizer': {'lr': 1e-4}}"""
    key, equals, text = override.partition("=")
    if not (key and equals):
        raise ConfigError(f"override {override!r}; expected key=value, as in optimizer.lr=3e-4")
    value = parse_yaml(text, override)
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, mappings merged key by key. A model's name stands for its preset."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if key == "model" and isinstance(old, str):
            old = {"preset": old}
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _resolve_model(model: Any) -> dict[str, Any]:
    """A preset's name, or a mapping with `preset` or `like` and the fields that differ -> all fields."""
    if isinstance(model, str):
        return preset(model).to_dict()
    if not isinstance(model, Mapping):
        raise ConfigError(f"model = {model!r}; expected the name of a preset or a mapping")
    fields = dict(model)
    given = {key: fields.pop(key) for key in ("preset", "like") if key in fields}
    if len(given) > 1:
        raise ConfigError(f"model.preset and model.like were given ({given}); allowed: one of them")
    for key, name in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"model.{key} = {name!r}; expected a name")
    if "like" in given:
        start, _ = read_model_config(hub.find(given["like"]) / hub.CONFIG_FILE)
    else:
        start = preset(given.get("preset", CodecConfig().name))
    return _merge(start.to_dict(), fields)
