"""Training state on disk: one file per checkpoint, whole or not there."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import zipfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ..errors import DTMCodecError
from ..system.files import atomic_path, write_atomically

log = logging.getLogger(__name__)

_NAME = re.compile(r"step-(\d+)\.ckpt")
KEEP_LAST = 2
PUBLISHED = "training.safetensors"
"""A checkpoint as it is published: the same content without pickle."""
DAMAGED = ".damaged"
"""Added to the name of a checkpoint that was put aside."""


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
    """Read a checkpoint: tensors and plain data only, no code is run. Its checksums are compared first."""
    file = find(path)
    try:
        if file.suffix == ".safetensors":
            state = _read_safetensors(file, device)
        else:
            _compare_checksums(file)
            state = torch.load(file, map_location=device, weights_only=True)
    except Exception as error:  # torch raises many kinds for damaged files
        reason = str(error) if isinstance(error, CheckpointError) else type(error).__name__
        raise CheckpointError(f"{file} is no readable checkpoint ({reason}){_one_before(file)}") from error
    if not isinstance(state, dict) or not {"config", "codec", "step"} <= set(state):
        raise CheckpointError(f"{file} is no checkpoint of dtm-codec train")
    return state


def load_newest(folder: str | PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """The newest checkpoint of a run that is whole. Damaged ones that are newer are put aside."""
    newest, damaged = find(folder), []
    for path in reversed(list_checkpoints(folder)):
        try:
            state = load(path)
        except CheckpointError as error:
            damaged.append((path, error))
            continue
        for bad, reason in damaged:
            log.warning("%s; put aside as %s, going on from %s", reason, bad.name + DAMAGED, path.name)
            bad.rename(bad.with_name(bad.name + DAMAGED))
        return path, state
    return newest, load(newest)  # a published one; or the newest, which says what is wrong with it


def _compare_checksums(file: Path) -> None:
    """torch writes a checksum for each tensor into the archive, and does not look at it when it reads."""
    with zipfile.ZipFile(file) as archive:
        bad = archive.testzip()
    if bad is not None:
        raise CheckpointError(f"the checksum of {bad} differs")


def _one_before(file: Path) -> str:
    """What to use instead of a damaged checkpoint."""
    if _NAME.fullmatch(file.name) is None:
        return ""
    earlier = [path for path in list_checkpoints(file.parent) if step_of(path) < step_of(file)]
    return f"; the one before it: {earlier[-1]}" if earlier else ""


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
    metadata = {"state": outline, "sha256": _digest(outline, tensors)}
    write_atomically(path, safetensors.torch.save(tensors, metadata))


def _digest(outline: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(outline.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        digest.update(tensors[name].flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read_safetensors(path: Path, device: torch.device | str) -> dict[str, Any]:
    with safetensors.safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        metadata = file.metadata()
    if metadata.get("sha256") not in (None, _digest(metadata["state"], tensors)):  # release 0.1 wrote none
        raise CheckpointError("its checksum differs")

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"tensor"}:
                return tensors[value["tensor"]].to(device)
            # an optimizer counts its parameters, and JSON knows no keys but strings
            return {int(key) if key.isdigit() else key: filled(item) for key, item in value.items()}
        return [filled(item) for item in value] if isinstance(value, list) else value

    state: dict[str, Any] = filled(json.loads(metadata["state"]))
    return state
