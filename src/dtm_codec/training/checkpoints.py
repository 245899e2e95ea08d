"""Training state on disk: one file per checkpoint, whole or not there."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from ..errors import DTMCodecError
from ..files import atomic_path

_NAME = re.compile(r"step-(\d+)\.ckpt")
KEEP_LAST = 2


class CheckpointError(DTMCodecError):
    """A checkpoint that cannot be written, read or used."""


def step_of(path: Path) -> int:
    """Steps done when the checkpoint was written, from its name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(f"{path.name!r} is no checkpoint; expected step-NUMBER.ckpt")
    return int(match[1])


def list_checkpoints(folder: str | PathLike[str]) -> list[Path]:
    """All checkpoints of a run, oldest first."""
    return sorted((p for p in Path(folder).glob("step-*.ckpt") if _NAME.fullmatch(p.name)), key=step_of)


def latest(folder: str | PathLike[str]) -> Path | None:
    """The newest checkpoint of a run, if there is one."""
    return next(reversed(list_checkpoints(folder)), None)


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
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"no such checkpoint: {path}") from error
    except Exception as error:  # torch raises many kinds for damaged files
        raise CheckpointError(f"{path} is no readable checkpoint ({type(error).__name__})") from error
    if not isinstance(state, dict) or not {"config", "codec", "step"} <= set(state):
        raise CheckpointError(f"{path} is no checkpoint of dtm-codec train")
    return state
