"""What training starts from: manifests of LibriSpeech and MLS, and manifests packed into tar shards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..speech.audio import audio_bytes
from ..speech.folders import PUBLISHED, Corpus
from ..speech.manifest import read_manifest
from ..speech.utterance import Utterance
from ..system.files import write_atomically
from ..system.optional import import_optional
from .data import unless_broken


def _unwatched(done: int, total: int) -> None:
    """For callers who do not ask how many recordings are done."""


def prepare(
    corpus: Corpus,
    folders: Sequence[str | PathLike[str]],
    manifest: str | PathLike[str],
    *,
    on_progress: Callable[[int, int], None] = _unwatched,
) -> int:
    """Write a manifest of all recordings under `folders`, a corpus or subsets of it; returns how many there are."""
    roots, target = [Path(folder) for folder in folders], Path(manifest)
    for folder in (*roots, target.parent):
        if not folder.is_dir():
            raise DataError(f"no such folder: {folder}")

    def entry(utterance: Utterance) -> dict[str, Any] | None:
        duration = unless_broken(utterance.seconds)
        if duration is None:
            return None
        known = replace(utterance, duration=round(duration, 3)).to_record()
        if corpus == "librispeech":
            known["text"] = known["text"].lower()  # it is published in capitals
        return {"audio_filepath": Path(os.path.relpath(str(utterance.audio), target.parent)).as_posix(), **known}

    with ThreadPoolExecutor() as pool:
        found = [utterance for root in roots for utterance in PUBLISHED[corpus](root)]
        entries = []
        for number, known in enumerate(pool.map(entry, found), 1):
            entries += [] if known is None else [known]
            on_progress(number, len(found))
    if not entries:
        raise DataError(f"no {corpus} recordings with transcripts under {', '.join(map(str, roots))}")
    write_atomically(target, "".join(json.dumps(e, ensure_ascii=False) + "\n" for e in entries).encode())
    return len(entries)


def write_shards(
    manifest: str | PathLike[str],
    folder: str | PathLike[str],
    per_shard: int = 1_000,
    *,
    on_progress: Callable[[int, int], None] = _unwatched,
) -> int:
    """Pack the recordings of a manifest into `folder`/000000.tar, ... as WebDataset has them; returns how many shards.

    A whole file is taken as it is, a segment as FLAC. Beside it is what the manifest says of it, as JSON.
    """
    webdataset = import_optional("webdataset", "train")
    target = Path(folder)
    if next(target.glob("*.tar"), None) is not None:  # those that are not overwritten would be trained on too
        raise DataError(f"{target} holds .tar files already; allowed: a folder without any")
    target.mkdir(parents=True, exist_ok=True)
    utterances = list(read_manifest(Path(manifest)))
    with webdataset.ShardWriter(str(target / "%06d.tar"), maxcount=per_shard, verbose=0) as writer:
        for index, utterance in enumerate(utterances):
            on_progress(index, len(utterances))
            if packed := unless_broken(partial(_packed, utterance)):
                record = {"id": utterance.id, **utterance.to_record()}
                writer.write({"__key__": f"{index:09d}", packed[0]: packed[1], "json": record})
        return int(writer.shard)


def _packed(utterance: Utterance) -> tuple[str, bytes]:
    """Suffix and content of its file in a shard."""
    assert isinstance(utterance.audio, Path)  # it is from a manifest
    if utterance.offset is not None:
        return "flac", audio_bytes(*utterance.read(), ".flac")
    utterance.seconds()  # raises if it is no audio
    return utterance.audio.suffix[1:].lower(), utterance.audio.read_bytes()
