"""Tokens back to audio."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path, PurePosixPath

from ..coding.grouping import grouped
from ..speech.audio import AUDIO_SUFFIXES, write_audio
from .errors import CorpusError
from .schema import find_shards, read_footer, read_rows

BATCH_STEPS = 8192
"""Steps decoded at a time, packed end to end."""


def detokenize(
    parquet: str | PathLike[str],
    out: str | PathLike[str],
    *,
    model: str | PathLike[str] | None = None,
    device: str = "cpu",
    force: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write a WAV file for every row of a Parquet file, or of all under a folder, named by its id; returns how many.

    model: default is the one that the file says it was made with; only that one can decode it, wherever it is now.
    force: overwrite files that are there already.
    """
    from ..codec import DTMCodec

    paths = find_shards(parquet)
    footers = [read_footer(path) for path in paths]
    total = sum(report.utterances for _, report in footers)
    codec = DTMCodec.from_pretrained(footers[0][0].model if model is None else model, device)
    written: set[Path] = set()
    shards = zip(paths, footers, strict=True)
    rows = (row for path, (stamp, _) in shards for row in read_rows(path, stamp.layout))
    for batch in grouped(rows, lambda row: row.encoded.mask.size, BATCH_STEPS):
        for row, audio in zip(batch, codec.decode([row.encoded for row in batch]), strict=True):
            target = Path(out) / _file_name(row.id)
            if target in written:
                raise CorpusError(f"two rows would be written to {target}; the second has the id {row.id!r}")
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                write_audio(target, audio, codec.config.sample_rate, overwrite=force)
            except FileExistsError:
                raise CorpusError(f"{target} exists; --force overwrites it") from None
            written.add(target)
            on_progress(len(written), total)
    return len(written)


def _file_name(item_id: str) -> Path:
    """A path inside the output folder, whatever the id: 'a/b.flac' -> 'a/b.wav', '../b' -> 'b.wav'."""
    parts = [part for part in PurePosixPath(item_id).parts if part not in ("/", "//", "..")]
    if not parts:
        raise CorpusError(f"the id {item_id!r} gives no file name")
    name = Path(*parts)
    return name.with_suffix(".wav") if name.suffix.lower() in AUDIO_SUFFIXES else name.with_name(name.name + ".wav")
