"""Which kind of corpus it is: files in folders, a manifest, WebDataset tars, Parquet or Arrow tables.

A source is cut into parts that can be read independently of each other and in any order: byte ranges of a manifest,
row groups of a table, a whole tar. Cutting is deterministic and reads no audio; a folder of audio is listed into
a manifest first. Items are streamed, and every one has an id that is unique in the corpus and the same in each run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError
from ..speech.audio import AUDIO_SUFFIXES
from ..speech.tars import read_tar
from ..speech.utterance import Failure, Utterance
from ..system.files import atomic_path, walk
from .manifest import Manifest
from .parts import Compare, Fingerprint, Part, Source

SUFFIXES = {
    "audio": AUDIO_SUFFIXES,
    "manifest": (".jsonl", ".json", ".ndjson"),
    "tars": (".tar", ".tar.gz", ".tgz"),
    "tables": (".parquet", ".arrow"),
}


@dataclass(frozen=True)
class _Tars(Source):
    """Every tar is a part, of whatever size it is: to divide it, it would have to be read."""

    files: tuple[str, ...]

    def parts(self, size: int) -> Iterator[Part]:
        return (Part(file, 0, 0, None) for file in self.files)

    def read(self, part: Part) -> Iterator[Utterance | Failure]:
        return read_tar(self.root / part.file, part.file)


def open_source(corpus: Path, listing: Path, compare: Compare = "times") -> Source:
    """Find out what `corpus` is. The files of a folder of audio are listed into `listing`.

    The folder of `listing`, where the tokens go, is no part of the corpus, even if it is inside it.
    """
    if corpus.is_dir():
        return _open_folder(corpus, listing, compare)
    kind = _kind(corpus.name)
    if not corpus.is_file() or kind in (None, "audio"):
        allowed = ", ".join(suffix for name in ("manifest", "tars", "tables") for suffix in SUFFIXES[name])
        raise DataError(f"corpus {corpus}; allowed: an existing folder, or a file that ends in {allowed}")
    if kind == "manifest":
        return Manifest.scan(corpus, corpus.parent, compare)
    return _open_containers(corpus.parent, kind, [corpus.name], compare)


def _open_folder(folder: Path, listing: Path, compare: Compare) -> Source:
    containers: dict[str, list[str]] = {}
    sample = None
    with atomic_path(listing) as temporary, temporary.open("w", encoding="ascii") as lines:
        for path in walk(folder, leave_out=listing.parent):
            file, kind = path.relative_to(folder).as_posix(), _kind(path.name)
            if kind == "audio":
                sample = file
                lines.write(json.dumps({"audio_filepath": file}) + "\n")
            elif kind in ("tars", "tables"):
                containers.setdefault(kind, []).append(file)
    samples = [files[0] for files in containers.values()] + ([sample] if sample else [])
    if not samples:
        raise DataError(f"{folder} holds no audio, WebDataset tars, Parquet or Arrow files")
    if len(samples) > 1:
        raise DataError(f"{folder} holds several kinds of corpus, such as {', '.join(samples)}; name one of them")
    if sample:
        return Manifest.scan(listing, folder, compare)
    listing.unlink()
    ((kind, files),) = containers.items()
    return _open_containers(folder, kind, files, compare)


def _open_containers(root: Path, kind: str | None, files: list[str], compare: Compare) -> Source:
    fingerprint = Fingerprint(compare)
    for file in files:
        fingerprint.add(f"{file}\n".encode("utf-8", "surrogateescape"))
        fingerprint.add_file(root / file)
    if kind == "tars":
        return _Tars(root, str(fingerprint), None, tuple(files))
    from .tables import Tables  # needs pyarrow

    return Tables.scan(root, files, fingerprint)


def _kind(name: str) -> str | None:
    return next((kind for kind, suffixes in SUFFIXES.items() if name.lower().endswith(suffixes)), None)
