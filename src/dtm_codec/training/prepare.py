"""Manifests of well-known corpora as they lie on disk, and manifests packed into tar shards."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from ..errors import AudioError
from ..evaluation.data import language_of
from ..files import write_atomically
from ..optional import import_optional
from ..speech.audio import audio_info
from .data import DataError, read_manifest

log = logging.getLogger(__name__)

Corpus = Literal["librispeech", "mls"]


def prepare(corpus: Corpus, folders: Sequence[str | PathLike[str]], manifest: str | PathLike[str]) -> int:
    """Write a manifest of all recordings under `folders`, a corpus or subsets of it; returns how many there are."""
    roots, target = [Path(folder) for folder in folders], Path(manifest)
    for folder in (*roots, target.parent):
        if not folder.is_dir():
            raise DataError(f"no such folder: {folder}")

    def entry(found: tuple[Path, str, str]) -> dict[str, Any] | None:
        path, text, speaker = found
        try:
            duration = round(audio_info(path).duration_s, 3)
        except AudioError as error:
            log.warning("skipped: %s", error)
            return None
        relative = Path(os.path.relpath(path, target.parent)).as_posix()
        known = {"audio_filepath": relative, "duration": duration, "text": text, "speaker": speaker}
        language = "en" if corpus == "librispeech" else language_of(path.resolve())
        return known | ({} if language is None else {"lang": language})

    with ThreadPoolExecutor() as pool:
        found = (recording for root in roots for recording in _WALKS[corpus](root))
        entries = [e for e in pool.map(entry, found) if e is not None]
    if not entries:
        raise DataError(f"no {corpus} recordings with transcripts under {', '.join(map(str, roots))}")
    write_atomically(target, "".join(json.dumps(e, ensure_ascii=False) + "\n" for e in entries).encode())
    return len(entries)


def _librispeech(root: Path) -> Iterator[tuple[Path, str, str]]:
    """SUBSET/SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt with lines 'ID TEXT', and ID.flac beside it."""
    for transcript in sorted(root.rglob("*.trans.txt")):
        for line in transcript.read_text(encoding="utf-8").splitlines():
            name, _, text = line.partition(" ")
            yield transcript.parent / f"{name}.flac", text.lower(), name.partition("-")[0]


def _mls(root: Path) -> Iterator[tuple[Path, str, str]]:
    """SPLIT/transcripts.txt with lines 'SPEAKER_BOOK_ID<tab>TEXT', and SPLIT/audio/SPEAKER/BOOK/*.flac or *.opus."""
    for transcript in sorted(root.rglob("transcripts.txt")):
        for line in transcript.read_text(encoding="utf-8").splitlines():
            name, _, text = line.partition("\t")
            speaker, _, rest = name.partition("_")
            base = transcript.parent / "audio" / speaker / rest.partition("_")[0] / name
            flac, opus = base.with_name(f"{name}.flac"), base.with_name(f"{name}.opus")
            yield opus if opus.exists() else flac, text, speaker


_WALKS: dict[Corpus, Callable[[Path], Iterator[tuple[Path, str, str]]]] = {"librispeech": _librispeech, "mls": _mls}


def write_shards(manifest: str | PathLike[str], folder: str | PathLike[str], per_shard: int = 1_000) -> int:
    """Pack the recordings of a manifest into `folder`/000000.tar, ... as WebDataset has them; returns how many shards.

    The files are taken as they are: audio under its own suffix, the manifest's entry beside it as JSON.
    """
    webdataset = import_optional("webdataset", "train")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with webdataset.ShardWriter(str(target / "%06d.tar"), maxcount=per_shard, verbose=0) as writer:
        for index, (path, entry) in enumerate(read_manifest(Path(manifest))):
            try:
                audio_info(path)
            except AudioError as error:
                log.warning("skipped: %s", error)
                continue
            writer.write({"__key__": f"{index:09d}", path.suffix[1:].lower(): path.read_bytes(), "json": entry})
        return int(writer.shard)
