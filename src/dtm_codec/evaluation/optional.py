"""What may not be there: packages of the `eval` extra, and models on disk."""

from __future__ import annotations

import hashlib
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from ..errors import MissingExtraError


def require(module: str, package: str | None = None) -> ModuleType:
    """Import an optional module, or say how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(package or module.partition(".")[0], "eval") from None


def package_version(package: str) -> str:
    """`name version` of an installed distribution."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        raise MissingExtraError(package, "eval") from None


def fingerprint(path: Path) -> str:
    """Eight hex digits of a model file or folder, from sizes and the first MiB of every file."""
    digest = hashlib.sha256()
    for file in sorted(p for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file()):
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        with file.open("rb") as data:
            digest.update(data.read(1 << 20))
    return digest.hexdigest()[:8]
