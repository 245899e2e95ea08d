"""JSON lines that name audio files, as NeMo and many corpora have them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import CorpusError
from .items import (
    AUDIO_FIELDS,
    ID_FIELDS,
    SPEAKER_FIELDS,
    TEXT_FIELDS,
    Ids,
    Item,
    Part,
    Source,
    first_value,
    plain_text,
    text_field,
)


@dataclass(frozen=True)
class Manifest(Source):
    """Lines with `audio_filepath` and, if known, `id`, `text`, `speaker`, `offset` and `duration` (seconds).

    With `offset`, the line means that segment of the file; without it, the whole file.
    """

    path: Path

    @classmethod
    def scan(cls, path: Path, root: Path) -> Manifest:
        """Read the manifest once: every line must be sound and every id stand once."""
        digest, ids, count = hashlib.sha256(), Ids(), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                digest.update(line)
                if line.strip():
                    where = f"{path} line {number}"
                    ids.add(_item(line, root, where).id, where)
                    count += 1
        return cls(root, digest.hexdigest(), count, path)

    def parts(self, size: int) -> Iterator[Part]:
        """Byte ranges of `size` lines."""
        start = position = count = 0
        with self.path.open("rb") as file:
            for line in file:
                position += len(line)
                count += bool(line.strip())
                if count == size:
                    yield Part("", start, position, count)
                    start, count = position, 0
        if count:
            yield Part("", start, position, count)

    def read(self, part: Part) -> Iterator[Item]:
        """The items of a byte range."""
        with self.path.open("rb") as file:
            file.seek(part.start)
            while file.tell() < part.stop:
                if (line := file.readline()).strip():
                    yield _item(line, self.root, str(self.path))


def _item(line: bytes, root: Path, where: str) -> Item:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise CorpusError(f"{where} is not JSON: {error}") from error
    audio = first_value(record, AUDIO_FIELDS) if isinstance(record, dict) else None
    if not isinstance(audio, str):
        raise CorpusError(f"{where} names no audio; allowed: an object with a path in {' or '.join(AUDIO_FIELDS)}")
    offset, duration = record.get("offset"), record.get("duration")
    if not all(value is None or (type(value) in (int, float) and 0 <= value < 1e9) for value in (offset, duration)):
        raise CorpusError(f"{where}: offset = {offset!r}, duration = {duration!r}; allowed: 0 ... 1e9 seconds or null")
    return Item(
        id=text_field(record, ID_FIELDS) or plain_text(audio if offset is None else f"{audio}@{offset}"),
        audio=root / audio,
        text=text_field(record, TEXT_FIELDS),
        speaker=text_field(record, SPEAKER_FIELDS),
        offset_s=offset or 0.0,
        duration_s=None if offset is None else duration,
    )
