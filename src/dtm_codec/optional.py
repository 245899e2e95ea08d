"""What may not be there: packages of the `eval` extra, of single judges and peers, and models on disk."""

from __future__ import annotations

import hashlib
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from .errors import DTMCodecError, MissingExtraError

_BY_HAND = {
    "distillmos": "--no-deps distillmos xls-r-sqa==0.1.0",  # else it brings torchaudio, which it needs for nothing here
    "faster-whisper": "faster-whisper",
    "snac": "snac",
    "speechmos": "speechmos librosa requests",  # it does not say what it needs
    "torchaudio": "torchaudio",
    "transformers": "transformers",
    "useful-moonshine-onnx": "useful-moonshine-onnx",
    "utmosv2": "git+https://github.com/sarulab-speech/UTMOSv2.git",
}
"""Packages of one judge or peer, in no extra; what `pip install` takes for each."""


class MissingPackageError(DTMCodecError):
    """The package of a single judge or peer is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"this needs the package {package!r}: pip install {_BY_HAND[package]}")


def require(module: str, package: str | None = None) -> ModuleType:
    """Import an optional module, or say how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise _missing(package or module.partition(".")[0]) from None


def package_version(package: str) -> str:
    """`name version` of an installed distribution."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        raise _missing(package) from None


def _missing(package: str) -> DTMCodecError:
    return MissingPackageError(package) if package in _BY_HAND else MissingExtraError(package, "eval")


def fingerprint(path: Path) -> str:
    """Eight hex digits of a model file or folder, from sizes and the first MiB of every file."""
    digest = hashlib.sha256()
    for file in sorted(p for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file()):
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        with file.open("rb") as data:
            digest.update(data.read(1 << 20))
    return digest.hexdigest()[:8]
