"""onnxruntime-web, which runs graphs in a browser: the version that `page/package-lock.json` pins, and no other bytes.

It is 14 MB of WebAssembly that only this page needs, so that the package does not carry it. It is fetched once from
the npm registry, checked against the lock file, and kept in the user's cache. npm itself is not needed, but a folder
or an archive that npm made will do.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
import urllib.request
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.error import URLError

from ...errors import ConfigError
from ...files import write_atomically

FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""What the page loads."""

_PACKAGE = "onnxruntime-web"
_REGISTRY = "https://registry.npmjs.org"
_MAX_ARCHIVE_BYTES = 128 << 20
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Pinned:
    version: str
    integrity: str
    """As npm writes it: 'sha512-' and the hash of the archive in base64."""

    @classmethod
    def read(cls) -> Pinned:
        lock = resources.files(__package__).joinpath("page", "package-lock.json").read_text(encoding="utf-8")
        entry = json.loads(lock)["packages"][f"node_modules/{_PACKAGE}"]
        return cls(entry["version"], entry["integrity"])

    @property
    def archive(self) -> str:
        return f"{_PACKAGE}-{self.version}.tgz"

    @property
    def url(self) -> str:
        return f"{_REGISTRY}/{_PACKAGE}/-/{self.archive}"

    def check(self, archive: bytes, origin: str) -> None:
        found = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
        if found != self.integrity:
            raise ConfigError(f"{origin} has the hash {found}; allowed: {self.integrity}, {_PACKAGE} {self.version}")


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "dtm-codec"


def runtime_files(source: Path | None = None) -> dict[str, bytes]:
    """`FILES` by name. source: an installed npm package, or its archive; else the cache, or the npm registry."""
    pinned = Pinned.read()
    if source is not None:
        return _from_folder(source, pinned) if source.is_dir() else _from_archive(_read(source), pinned, str(source))
    cached = cache_folder() / f"{_PACKAGE}-{pinned.version}-{pinned.integrity[7:15].replace('/', '_')}"
    if all((cached / name).is_file() for name in FILES):
        return {name: (cached / name).read_bytes() for name in FILES}
    files = _from_archive(_fetch(pinned), pinned, pinned.url)
    cached.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(cached / name, data)
    return files


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); allowed: a folder or archive of npm") from error


def _fetch(pinned: Pinned) -> bytes:
    try:
        with urllib.request.urlopen(pinned.url, timeout=_TIMEOUT_S) as response:
            return bytes(response.read(_MAX_ARCHIVE_BYTES))
    except (URLError, OSError) as error:
        raise ConfigError(
            f"{pinned.url} cannot be fetched ({error}); allowed without a network: --runtime with what "
            f"'npm pack {_PACKAGE}@{pinned.version}' makes"
        ) from error


def _from_folder(folder: Path, pinned: Pinned) -> dict[str, bytes]:
    """An installed package; its version must be the one that the page was tested with."""
    try:
        version = json.loads((folder / "package.json").read_bytes())["version"]
        files = {name: (folder / "dist" / name).read_bytes() for name in FILES}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder} is no {_PACKAGE} that npm installed ({error})") from error
    if version != pinned.version:
        raise ConfigError(f"{folder} has version {version!r} of {_PACKAGE}; allowed: {pinned.version}")
    return files


def _from_archive(archive: bytes, pinned: Pinned, origin: str) -> dict[str, bytes]:
    """Nothing is unpacked before the hash of the archive is right."""
    pinned.check(archive, origin)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        members = {name: opened.extractfile(f"package/dist/{name}") for name in FILES}
        return {name: member.read() for name, member in members.items() if member is not None}
