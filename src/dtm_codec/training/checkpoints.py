"""Training state on disk: one file per checkpoint, whole or not there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ..errors import DTMCodecError
from ..files import atomic_path, write_atomically

_NAME = re.compile(r"step-(\d+)\.ckpt")
KEEP_LAST = 2
PUBLISHED = "training.safetensors"
"""A checkpoint as it is published: the same content without pickle."""


class CheckpointError(DTMCodecError):
    """A checkpoint that cannot be written, read or used."""


def step_of(path: Path) -> int:
    """Steps done when the checkpoint was written, from its name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(f"{path.name!r} is no checkpoint; expected step-NUMBER.ckpt")
    return int(match[1])


def list_checkpoints(folder: str | PathLike[str]) -> list[Path]:
    return sorted((p for p in Path(folder).glob("step-*.ckpt") if _NAME.fullmatch(p.name)), key=step_of)


def latest(folder: str | PathLike[str]) -> Path | None:
    """The newest checkpoint of a run, if there is one; a published one counts if there is no other."""
    published = Path(folder) / PUBLISHED
    return next(reversed(list_checkpoints(folder)), published if published.is_file() else None)


def find(source: str | PathLike[str]) -> Path:
    """A checkpoint by its own path or that of its run."""
    path = Path(source)
    if path.is_dir():
        newest = latest(path)
        if newest is None:
            raise CheckpointError(f"no checkpoint in {path}")
        return newest
    if not path.is_file():
        raise CheckpointError(f"no such checkpoint: {path}")
    return path


def save(folder: str | PathLike[str], step: int, state: dict[str, Any], keep_every: int) -> Path:
    """Write a checkpoint, then remove all but the last two and those at multiples of `keep_every`.

    Until the new file is whole and on disk nothing is removed, so a full disk loses nothing.
    """
    path = Path(folder) / f"step-{step:08d}.ckpt"
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as either
        reason = getattr(error, "strerror", None) or "the disk may be full"
        last = latest(folder)
        kept = f"the last good checkpoint is {last}" if last else "there is no earlier checkpoint"
        raise CheckpointError(f"cannot write {path}: {reason}; {kept}") from error
    for old in list_checkpoints(folder)[:-KEEP_LAST]:
        if step_of(old) % keep_every:
            old.unlink()
    return path


def load(path: str | PathLike[str], device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint: tensors and plain data only, no code is run."""
    file = find(path)
    try:
        if file.suffix == ".safetensors":
            state = _read_safetensors(file, device)
        else:
            state = torch.load(file, map_location=device, weights_only=True)
    except Exception as error:  # torch raises many kinds for damaged files
        raise CheckpointError(f"{path} is no readable checkpoint ({type(error).__name__})") from error
    if not isinstance(state, dict) or not {"config", "codec", "step"} <= set(state):
        raise CheckpointError(f"{path} is no checkpoint of dtm-codec train")
    return state


def write_safetensors(path: str | PathLike[str], state: dict[str, Any]) -> None:
    """Write a state's tensors by their paths in it, and the rest as JSON in the file's header."""
    tensors: dict[str, Tensor] = {}

    def plain(value: Any, where: str) -> Any:
        if isinstance(value, Tensor):
            tensors[where] = value.contiguous().cpu()
            return {"tensor": where}
        if isinstance(value, Mapping):
            return {str(key): plain(item, f"{where}/{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item, f"{where}/{i}") for i, item in enumerate(value)]
        return value

    outline = json.dumps({key: plain(value, key) for key, value in state.items()})
    write_atomically(path, safetensors.torch.save(tensors, {"state": outline}))


def _read_safetensors(path: Path, device: torch.device | str) -> dict[str, Any]:
    with safetensors.safe_open(path, framework="pt", device=str(device)) as file:

        def filled(value: Any) -> Any:
            if isinstance(value, dict):
                if set(value) == {"tensor"}:
                    return file.get_tensor(value["tensor"])
                # an optimizer counts its parameters, and JSON knows no keys but strings
                return {int(key) if key.isdigit() else key: filled(item) for key, item in value.items()}
            return [filled(item) for item in value] if isinstance(value, list) else value

        state: dict[str, Any] = filled(json.loads(file.metadata()["state"]))
        return state
