"""Manifests: one JSON object a line that names an audio file and what is known of it, as NeMo and many corpora do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ..errors import DataError
from .utterance import AUDIO_FIELDS, Utterance, first_field


def read_manifest(path: Path, *, must_exist: bool = False) -> Iterator[Utterance]:
    """The utterances of a manifest; with `must_exist`, a line whose audio file is not there is refused."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                where = f"{path} line {number}"
                utterance = parse_line(line, path.parent, where)
                if must_exist and isinstance(utterance.audio, Path) and not utterance.audio.is_file():
                    raise DataError(f"{where}: {utterance.audio} is not there")
                yield utterance


def parse_line(line: bytes, root: Path, where: str) -> Utterance:
    """The utterance of one line, whose path counts from `root`; `where` is the place that errors name."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    field = first_field(record, AUDIO_FIELDS) if isinstance(record, dict) else None
    path = field and record[field]
    if not isinstance(path, str):
        raise DataError(f"{where} names no audio; allowed: an object with a path in {' or '.join(AUDIO_FIELDS)}")
    try:
        name = path if record.get("offset") is None else f"{path}@{record['offset']}"
        return Utterance.from_record(record, root / path, name)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
