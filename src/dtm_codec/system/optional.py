"""Packages that may not be there: those of the extras, and those of a single judge or peer that are in no extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import DTMCodecError

_PACKAGES = {
    "moonshine_onnx": "useful-moonshine-onnx",
    "parselmouth": "praat-parselmouth",
    "visqol": "visqol-python",
    "yaml": "pyyaml",
}
"""Module -> package, where the names differ in more than a hyphen."""

_IN_NO_EXTRA = {
    "onnxruntime": "onnxruntime",  # part of every install, but not on every platform
    "ai-edge-litert": "ai-edge-litert",  # 60 MB for one judge, and not on every platform
    "distillmos": "--no-deps distillmos xls-r-sqa==0.1.0",  # else it brings torchaudio, which it needs for nothing here
    "faster-whisper": "faster-whisper",
    "snac": "snac",
    "speechmos": "speechmos librosa requests",  # it does not say what it needs
    "torchaudio": "torchaudio",
    "transformers": "transformers",
    "useful-moonshine-onnx": "useful-moonshine-onnx",
    "utmosv2": "git+https://github.com/sarulab-speech/UTMOSv2.git",
    "wandb": "wandb",
}
"""What `pip install` takes for each."""


class MissingPackageError(DTMCodecError):
    """An optional package is not installed."""


def import_optional(module: str, extra: str = "eval") -> Any:
    """Import a module of an optional package, or say how to install it. `extra` is the one that brings it, if any."""
    try:
        return import_module(module)
    except ImportError:
        raise missing(module, extra) from None


def package_version(module: str) -> str:
    """`name version` of the package that a judge's module comes in."""
    from importlib.metadata import PackageNotFoundError, version  # takes a while to import

    package = _package(module)
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        raise missing(module, "eval") from None


def _package(module: str) -> str:
    top = module.partition(".")[0]
    return _PACKAGES.get(top, top.replace("_", "-"))


def missing(module: str, extra: str) -> MissingPackageError:
    package = _package(module)
    wanted = _IN_NO_EXTRA.get(package, f"'dtm-codec[{extra}]'")
    return MissingPackageError(f"this needs the package {package!r}: pip install {wanted}")
