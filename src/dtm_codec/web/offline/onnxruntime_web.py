"""onnxruntime-web, which runs graphs in a browser: the version that `page/package-lock.json` pins, and no other bytes.

It is 14 MB of WebAssembly that only this page needs, so that the package does not carry it. npm fetches it once, from
wherever the user's npm fetches packages; it is checked against the lock file and kept in the user's cache. A folder or
an archive that npm made elsewhere will do too.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ...errors import ConfigError
from ...system.files import write_atomically

FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""What the page loads."""

_PACKAGE = "onnxruntime-web"
_TIMEOUT_S = 300


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
    def package(self) -> str:
        """As npm takes it."""
        return f"{_PACKAGE}@{self.version}"

    def check(self, archive: bytes, origin: str) -> None:
        found = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
        if found != self.integrity:
            raise ConfigError(f"{origin} has the hash {found}; allowed: {self.integrity}, {_PACKAGE} {self.version}")


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "dtm-codec"


def runtime_files(source: Path | None = None) -> dict[str, bytes]:
    """`FILES` by name. source: an installed npm package, or its archive; else the cache, or npm."""
    pinned = Pinned.read()
    if source is not None:
        return _from_folder(source, pinned) if source.is_dir() else _from_archive(_read(source), pinned, str(source))
    cached = cache_folder() / f"{_PACKAGE}-{pinned.version}-{pinned.integrity[7:15].replace('/', '_')}"
    if all((cached / name).is_file() for name in FILES):
        return {name: (cached / name).read_bytes() for name in FILES}
    files = _from_archive(_fetch(pinned), pinned, pinned.package)
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
    """The archive, as npm gets it."""
    npm = shutil.which("npm")
    if npm is None:
        raise ConfigError(_unfetched(pinned, "the program npm is not installed"))
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", pinned.package, "--silent", "--pack-destination", folder]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
            (archive,) = Path(folder).iterdir()
        except subprocess.CalledProcessError as error:
            said = " ".join(error.stderr.split())[-300:]
            raise ConfigError(_unfetched(pinned, said or f"npm ended with {error.returncode}")) from error
        except (subprocess.TimeoutExpired, OSError, ValueError) as error:
            raise ConfigError(_unfetched(pinned, str(error))) from error
        return archive.read_bytes()


def _unfetched(pinned: Pinned, why: str) -> str:
    return (
        f"{pinned.package} cannot be fetched ({why}); allowed without a network: --runtime with what "
        f"'npm pack {pinned.package}' makes"
    )


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
