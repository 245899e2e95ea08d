"""Models as folders: `config.json` and `model.safetensors`, never pickle.

A model's identity is its short name and 32 bits of a hash over configuration and weights: 's-vfr-50:1f3a5c7e'. Files
carry it, so that other weights refuse them. Token statistics are not part of it: they only pack files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np
import safetensors

from ..bitstream.token_coder import TokenModel
from ..bitstream.token_statistics import MAX_CLASSES
from ..config import PRESETS, Bitrates, CodecConfig, config_values, preset, read_model_config
from ..errors import ModelError
from ..system.files import json_bytes, write_atomically
from . import remote_code
from .weights import TAU, Array, dtype_of, shapes

DEFAULT_MODEL = "small"
LIVE_MODEL = "small-live"
"""What streams take where no model is named: it looks ahead a known time, and no farther."""
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
DISCRIMINATORS_FILE = "discriminators.safetensors"
"""For fine-tuning. A folder need not have it, and it is not downloaded: those of large models are large."""
BUNDLED = Path(__file__).parents[1] / "pretrained"
TOKEN_MODEL_PREFIX = "token_model."
MAX_CONFIG_BYTES = 1 << 20

StoredAs: TypeAlias = Literal["F32", "F16", "BF16"]

_STORED_AS = {np.dtype(np.float32): ("F32", "F16", "BF16"), np.dtype(np.float64): ("F64",)}
"""How a tensor of the network may be stored."""

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I16": "<i2"}
"""What safetensors calls them, and how NumPy reads them."""

_STATISTICS = {"class_of": ("I16", 1), "transitions": ("I32", 2), "members": ("I32", 1)}
"""Type and number of axes of the token statistics."""


@dataclass(frozen=True)
class LoadedModel:
    """What a model folder holds; no tensors for an untrained model."""

    config: CodecConfig
    tensors: dict[str, Array] | None
    token_model: TokenModel | None
    origin: str
    bitrates: Bitrates | None = None

    @cached_property
    def model_id(self) -> str:
        return model_id_of(self.config, self.tensors or {})


def bundled_models() -> dict[str, Path]:
    """Folders of the models inside the package, by name."""
    return {path.parent.name: path.parent for path in sorted(BUNDLED.glob(f"*/{CONFIG_FILE}"))}


def weights_folder(folder: Path) -> Path:
    """Where the weights of a model folder are: in it, but for bundled models that share those of the default one."""
    shares = folder.resolve().parent == BUNDLED.resolve() and not (folder / WEIGHTS_FILE).exists()
    return BUNDLED / DEFAULT_MODEL if shares else folder


def load(name_or_folder: str | PathLike[str]) -> LoadedModel:
    """Read a bundled model, a folder, a hub id or 'random:PRESET'."""
    if not isinstance(name_or_folder, str):
        return read_folder(Path(name_or_folder))
    if name_or_folder.startswith("random:"):
        return LoadedModel(preset(name_or_folder.removeprefix("random:")), None, None, name_or_folder)
    return read_folder(find(name_or_folder))


def find(name: str) -> Path:
    """The folder of a model that is bundled, on disk or on the hub."""
    bundled = bundled_models()
    if name in bundled:
        return bundled[name]
    if Path(name).is_dir():
        return Path(name)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return download(name)
    known = ", ".join(map(repr, bundled)) or "none bundled yet"
    raise ModelError(
        f"no model {name!r}; known: {known}, a folder, a hub id 'owner/name', "
        f"or 'random:PRESET' with a preset of {', '.join(PRESETS)}"
    )


def download(hub_id: str, **options: Any) -> Path:
    """The folder of a model on the hub, 'owner/name' or 'owner/name@revision'. options: of `snapshot_download`"""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelError(f"no folder {hub_id!r}; to look for it on the hub: pip install 'dtm-codec[hub]'") from None
    repository, _, revision = hub_id.partition("@")
    if revision:
        options["revision"] = revision
    try:
        return Path(snapshot_download(repository, allow_patterns=[CONFIG_FILE, WEIGHTS_FILE], **options))
    except Exception as error:  # whatever the network or the hub answers, the user gets one line
        raise ModelError(f"no folder and no model on the hub: {hub_id!r} ({type(error).__name__})") from None


def read_folder(folder: Path) -> LoadedModel:
    """Read a model folder; configuration and weights are checked, nothing is executed."""
    config_path, weights_path = folder / CONFIG_FILE, weights_folder(folder) / WEIGHTS_FILE
    for path in (config_path, weights_path):
        if not path.is_file():
            raise ModelError(f"{str(folder)!r} is no model folder: it has no {path.name}")
    if config_path.stat().st_size > MAX_CONFIG_BYTES:
        raise ModelError(f"{config_path}: {config_path.stat().st_size} bytes; allowed: up to {MAX_CONFIG_BYTES}")
    config, bitrates = read_model_config(config_path)
    try:
        _compare_header(config, weights_path)
        tensors = _tensors(weights_path.read_bytes())
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelError(f"{weights_path}: not a safetensors file ({error})") from None
    prefix = TOKEN_MODEL_PREFIX
    arrays = {key.removeprefix(prefix): tensors.pop(key) for key in sorted(tensors) if key.startswith(prefix)}
    try:
        token_model = TokenModel.from_arrays(arrays) if arrays else None
    except ModelError as error:
        raise ModelError(f"{weights_path}: {error}") from None
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all() and not (name == TAU and np.isnan(tensor)):  # it is NaN before training
            raise ModelError(f"{weights_path}: {name} holds NaN or infinity; allowed: finite numbers")
    return LoadedModel(config, tensors, token_model, str(folder), bitrates)


def _tensors(data: bytes) -> dict[str, Array]:
    deserialize: Callable[[bytes], list[tuple[str, _Packed]]] = safetensors.deserialize
    return {name: _unpacked(**packed) for name, packed in deserialize(data)}


class _Stored(NamedTuple):
    """A tensor as the header of a file has it."""

    type: str
    shape: tuple[int, ...]


def _compare_header(config: CodecConfig, path: Path) -> None:
    """Refuse a file whose tensors are not those of the configuration. Only its header is read for that, and no weights
    are allocated."""
    with safetensors.safe_open(path, framework="np") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        stored = {name: _Stored(str(part.get_dtype()), tuple(part.get_shape())) for name, part in slices.items()}
    for name in sorted(name for name in stored if name.startswith(TOKEN_MODEL_PREFIX)):
        _compare_statistics(config, name.removeprefix(TOKEN_MODEL_PREFIX), stored.pop(name), path)
    own = shapes(config)
    missing, foreign = sorted(set(own) - set(stored)), sorted(set(stored) - set(own))
    if missing or foreign:
        raise ModelError(
            f"{path}: the weights do not match the config: "
            + "; ".join(
                f"{len(names)} tensors {what}, such as {names[0][:200]!r}"
                for names, what in ((missing, "missing"), (foreign, "unknown"))
                if names
            )
        )
    for name, shape in own.items():
        found, allowed = stored[name], _STORED_AS[dtype_of(name)]
        if found.shape != shape:
            raise ModelError(f"{path}: {name} has shape {found.shape}; the config needs {shape}")
        if found.type not in allowed:
            raise ModelError(f"{path}: {name} is {found.type}; allowed: {', '.join(allowed)}")


def _compare_statistics(config: CodecConfig, name: str, found: _Stored, path: Path) -> None:
    kind, axes = _STATISTICS.get(name, ("", 0))
    if (found.type, len(found.shape)) != (kind, axes):
        allowed = ", ".join(f"{n} ({k}, {a} axes)" for n, (k, a) in _STATISTICS.items())
        raise ModelError(f"{path}: token statistics {name!r} ({found.type}, {found.shape}); allowed: {allowed}")
    size = config.quantizer.codebook_size
    if axes == 1 and found.shape[0] != size:
        raise ModelError(f"{path}: token statistics of {found.shape[0]} codes; the config has {size}")
    if axes == 2 and not (found.shape[0] == found.shape[1] <= MAX_CLASSES):
        allowed = f"(C, C) with C up to {MAX_CLASSES}"
        raise ModelError(f"{path}: token statistics {name!r} of shape {found.shape}; allowed: {allowed}")


def save(
    config: CodecConfig,
    tensors: Mapping[str, Array],
    token_model: TokenModel | None,
    folder: str | PathLike[str],
    stored: StoredAs = "F32",
    bitrates: Bitrates | None = None,
    *,
    transformers: bool = False,
) -> str:
    """Write a model folder and return the id of what was written.

    stored: how weights are; tau stays float64. transformers: write it so that transformers can load it too
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    packed = {name: _packed(values, "F64" if name == TAU else stored) for name, values in tensors.items()}
    arrays = {} if token_model is None else token_model.to_arrays()
    for name, values in arrays.items():
        packed[TOKEN_MODEL_PREFIX + name] = _packed(values, _STATISTICS[name][0])
    # `save_file` makes a file of its own that none but its owner may read, and that a kill leaves behind
    write_atomically(path / WEIGHTS_FILE, _file_of(packed))
    described = config_values(config, bitrates)
    if transformers:
        preprocessor = remote_code.preprocessor(config.sample_rate)
        write_atomically(path / "preprocessor_config.json", json_bytes(preprocessor))
        for name, code in remote_code.code().items():
            write_atomically(path / name, code)
    described = remote_code.configuration(described) if transformers else described
    write_atomically(path / CONFIG_FILE, json_bytes(described))
    return model_id_of(config, {name: _unpacked(**packed[name]) for name in tensors})


class _Packed(TypedDict):
    """A tensor as safetensors takes and gives it."""

    dtype: str
    shape: list[int]
    data: bytes


def _packed(values: Array, stored: str) -> _Packed:
    if stored == "BF16":  # the upper half of a float32, rounded to even
        bits = np.asarray(values, np.float32).view(np.uint32)
        values = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return _Packed(dtype=stored, shape=list(values.shape), data=values.astype(_TYPES[stored]).tobytes())


def _file_of(packed: dict[str, _Packed]) -> bytes:
    """A safetensors file. The package's own writers know no bfloat16 without torch, or differ between versions."""
    header: dict[str, Any] = {}
    begin = 0
    names = sorted(packed, key=lambda name: (-np.dtype(_TYPES[packed[name]["dtype"]]).itemsize, name))  # all aligned
    for name in names:
        tensor = packed[name]
        end = begin + len(tensor["data"])
        header[name] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(packed[name]["data"] for name in names)])


def _unpacked(dtype: str, shape: list[int], data: bytes) -> Array:
    values = np.frombuffer(data, _TYPES[dtype]).reshape(shape)
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else values


def model_id_of(config: CodecConfig, tensors: Mapping[str, Array]) -> str:
    """Hashes values, not their storage: weights from a half-precision file are the same in float32, on any device.

    Of the configuration, only what differs from the defaults counts. So a new option leaves old models their ids.
    """
    changes = _difference(config.to_dict(), CodecConfig().to_dict())
    digest = hashlib.sha256(json.dumps(changes, sort_keys=True).encode())
    for name in sorted(tensors):
        values = np.asarray(tensors[name], dtype_of(name).newbyteorder("<"), order="C")  # tau stays without an axis
        digest.update(f"{name} torch.{dtype_of(name)} {list(values.shape)}".encode())
        digest.update(values.data)
    return f"{config.name}:{digest.hexdigest()[:8]}"


def _difference(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _difference(value, defaults[key]) if isinstance(value, dict) else value
        for key, value in values.items()
        if value != defaults[key]
    }
