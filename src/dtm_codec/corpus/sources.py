"""Which kind of corpus it is: files in folders, a manifest, WebDataset tars, Parquet or Arrow tables.

A source is cut into parts that can be read independently of each other and in any order: byte ranges of a manifest,
row groups of a table, a whole tar. Cutting is deterministic and reads no audio; a folder of audio is listed into
a manifest first. Items are streamed, and every one has an id that is unique in the corpus and the same in each run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ..files import atomic_path
from .errors import CorpusError
from .items import AUDIO_SUFFIXES, Source
from .manifest import Manifest
from .tars import Tars

SUFFIXES = {
    "audio": AUDIO_SUFFIXES,
    "manifest": (".jsonl", ".json", ".ndjson"),
    "tars": (".tar", ".tar.gz", ".tgz"),
    "tables": (".parquet", ".arrow"),
}


def open_source(corpus: Path, listing: Path) -> Source:
    """Find out what `corpus` is. The files of a folder of audio are listed into `listing`.

    The folder of `listing`, where the tokens go, is no part of the corpus, even if it is inside it.
    """
    if corpus.is_dir():
        return _open_folder(corpus, listing)
    kind = _kind(corpus.name)
    if not corpus.is_file() or kind in (None, "audio"):
        allowed = ", ".join(suffix for name in ("manifest", "tars", "tables") for suffix in SUFFIXES[name])
        raise CorpusError(f"corpus {corpus}; allowed: an existing folder, or a file that ends in {allowed}")
    if kind == "manifest":
        return Manifest.scan(corpus, corpus.parent)
    return _open_containers(corpus.parent, kind, [corpus.name])


def _open_folder(folder: Path, listing: Path) -> Source:
    containers: dict[str, list[str]] = {}
    sample = None
    with atomic_path(listing) as temporary, temporary.open("w", encoding="ascii") as lines:
        for file in _walk(folder, listing.parent):
            kind = _kind(file)
            if kind == "audio":
                sample = file
                lines.write(json.dumps({"audio_filepath": file, "size": _size(folder / file)}) + "\n")
            elif kind in ("tars", "tables"):
                containers.setdefault(kind, []).append(file)
    samples = [files[0] for files in containers.values()] + ([sample] if sample else [])
    if not samples:
        raise CorpusError(f"{folder} holds no audio, WebDataset tars, Parquet or Arrow files")
    if len(samples) > 1:
        raise CorpusError(f"{folder} holds several kinds of corpus, such as {', '.join(samples)}; name one of them")
    if sample:
        return Manifest.scan(listing, folder)
    listing.unlink()
    ((kind, files),) = containers.items()
    return _open_containers(folder, kind, files)


def _open_containers(root: Path, kind: str | None, files: list[str]) -> Source:
    names_and_sizes = "\n".join(f"{file} {_size(root / file)}" for file in files)
    fingerprint = hashlib.sha256(names_and_sizes.encode("utf-8", "surrogateescape")).hexdigest()
    if kind == "tars":
        return Tars(root, fingerprint, None, tuple(files))
    from .tables import Tables  # needs pyarrow

    return Tables.scan(root, fingerprint, files)


def _kind(name: str) -> str | None:
    return next((kind for kind, suffixes in SUFFIXES.items() if name.lower().endswith(suffixes)), None)


def _walk(folder: Path, other: Path) -> Iterator[str]:
    """Files under `folder` but not `other`, relative, in a fixed order, neither hidden nor in a hidden folder. Links
    lead to no folder twice."""
    entered = {folder.resolve(), other.resolve()}
    for parent, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        seen = [name for name in sorted(folders) if not name.startswith(".")]
        folders[:] = [name for name in seen if (Path(parent) / name).resolve() not in entered]
        entered.update((Path(parent) / name).resolve() for name in folders)
        relative = Path(parent).relative_to(folder)
        yield from ((relative / name).as_posix() for name in sorted(files) if not name.startswith("."))


def _raise(error: OSError) -> None:
    raise error


def _size(path: Path) -> int | None:
    """Bytes of a file; None for a link to nowhere, which fails when it is read."""
    try:
        return path.stat().st_size
    except OSError:
        return None
