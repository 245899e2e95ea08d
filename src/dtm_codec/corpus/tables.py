"""Tables with an audio column: Parquet files, and the Arrow files that `datasets` saves to disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError
from ..speech.utterance import AUDIO_FIELDS, FIELDS, Failure, Utterance, first_field, plain_text
from ..system.optional import import_optional
from .parts import Fingerprint, Ids, Part, Source

pa, pq = import_optional("pyarrow", "corpus"), import_optional("pyarrow.parquet", "corpus")

_ARROW_FILE = b"ARROW1"
"""How the format with an index begins."""

ROWS_AT_ONCE = 16
"""Rows with their audio bytes in memory at a time."""


@dataclass(frozen=True)
class Tables(Source):
    """Parquet or Arrow files. Rows without an id column are called by file and row number."""

    files: tuple[str, ...]

    @classmethod
    def scan(cls, root: Path, files: list[str], fingerprint: Fingerprint) -> Tables:
        """Read footers, ids and paths of audio, and look at the files that these name. No audio is read. A table that
        cannot be read fails later, as an item."""
        ids, count = Ids(), 0
        for file in files:
            try:
                table = _open(root / file)
                count += sum(table.group_rows)
                columns = _columns(table.schema, file)
                for name in columns.ids:
                    for batch in table.batches(0, len(table.group_rows), [name]):
                        for value in filter(None, map(str, batch[name].drop_null().to_pylist())):
                            ids.add(value, f"{file} column {name!r}")
                if _may_name_files(table.schema.field(columns.audio).type):
                    for path in table.audio_paths(columns.audio):
                        fingerprint.add_file(root / path)
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                continue
        return cls(root, str(fingerprint), count, tuple(files))

    def parts(self, size: int) -> Iterator[Part]:
        """Runs of row groups with at least `size` rows, or what is left of a file."""
        for file in self.files:
            try:
                group_rows = _open(self.root / file).group_rows
            except (pa.ArrowException, OSError):
                yield Part(file, 0, 0, None)
                continue
            start = rows = 0
            for group, in_group in enumerate(group_rows, 1):
                rows += in_group
                if rows >= size or (rows and group == len(group_rows)):
                    yield Part(file, start, group, rows)
                    start, rows = group, 0

    def read(self, part: Part) -> Iterator[Utterance | Failure]:
        """The items of a run of row groups; where it cannot be read on, a failure."""
        name, row = plain_text(part.file), 0
        try:
            table = _open(self.root / part.file)
            columns = _columns(table.schema, part.file)
            row = sum(table.group_rows[: part.start])
            for batch in table.batches(part.start, part.stop, columns.all):
                for index in range(batch.num_rows):
                    yield self._item(batch.slice(index, 1), columns.audio, f"{name}:{row}")
                    row += 1
        except (pa.ArrowException, OSError) as error:
            yield Failure(f"{name}:{row}", f"the table cannot be read from row {row} on: {error}")

    def _item(self, row: Any, audio_column: str, place: str) -> Utterance | Failure:
        """row: a batch of one"""
        try:
            (record,) = row.to_pylist()
        except UnicodeDecodeError as error:
            return Failure(place, f"the row holds text that is not UTF-8: {error}")
        own = first_field(record, FIELDS["id"])
        name = (own and plain_text(str(record[own]))) or place
        audio = record.pop(audio_column)
        if isinstance(audio, dict):  # as `datasets` stores it: the bytes of a file, or where it is
            audio = audio.get("bytes") or audio.get("path")
        if not isinstance(audio, str | bytes):
            return Failure(name, f"column {audio_column!r} holds neither the bytes of an audio file nor a path")
        try:
            return Utterance.from_record(record, self.root / audio if isinstance(audio, str) else audio, name)
        except DataError as error:
            return Failure(name, str(error))


class _Columns(NamedTuple):
    audio: str
    ids: list[str]
    """At most one."""
    all: list[str]


def _columns(schema: Any, file: str) -> _Columns:
    """Which columns to read: the one that `datasets` marked as audio, or the first with a usual name."""
    audio = next((name for name in (*_marked(schema), *AUDIO_FIELDS) if name in schema.names), None)
    if audio is None:
        raise DataError(f"{file} has no audio column among {schema.names}; allowed: {', '.join(AUDIO_FIELDS)}")
    ids = [name for name in FIELDS["id"] if name in schema.names][:1]
    wanted = {audio, *ids, *FIELDS["text"], *FIELDS["speaker"], "offset", "duration"}
    return _Columns(audio, ids, [name for name in schema.names if name in wanted])


def _marked(schema: Any) -> list[str]:
    """Columns that `datasets` marked as audio. What it did not write like this says nothing."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return [name for name, kind in features.items() if isinstance(kind, dict) and kind.get("_type") == "Audio"]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []


class _Parquet:
    def __init__(self, path: Path) -> None:
        self._path = path
        with pq.ParquetFile(path) as file:
            self.schema = file.schema_arrow
            self.group_rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]

    def batches(self, start: int, stop: int, columns: list[str]) -> Iterator[Any]:
        with pq.ParquetFile(self._path, pre_buffer=False) as file:  # a row group of audio can be large
            yield from file.iter_batches(ROWS_AT_ONCE, row_groups=list(range(start, stop)), columns=columns)

    def audio_paths(self, column: str) -> Iterator[str]:
        """Files that rows name in place of audio; of a row group that holds some of its audio, all that are named."""
        in_struct = pa.types.is_struct(self.schema.field(column).type)
        with pq.ParquetFile(self._path) as file:
            groups = [i for i in range(file.num_row_groups) if not _holds_all(file.metadata.row_group(i), column)]
            for batch in file.iter_batches(row_groups=groups, columns=[f"{column}.path" if in_struct else column]):
                yield from _strings(batch[column].field("path") if in_struct else batch[column])


class _Arrow:
    """Either of Arrow's formats: `datasets` writes streams, most others files with an index at their end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._groups() as (self.schema, groups):
            self.group_rows = [batch.num_rows for batch in groups]

    @contextmanager
    def _groups(self) -> Iterator[tuple[Any, Iterator[Any]]]:
        with pa.memory_map(str(self._path)) as memory:
            indexed = memory.read(len(_ARROW_FILE)) == _ARROW_FILE
            memory.seek(0)
            with pa.ipc.open_file(memory) if indexed else pa.ipc.open_stream(memory) as reader:
                yield reader.schema, map(reader.get_batch, range(reader.num_record_batches)) if indexed else reader

    def batches(self, start: int, stop: int, columns: list[str]) -> Iterator[Any]:
        with self._groups() as (_, groups):
            for batch in islice(groups, start, stop):
                chosen = batch.select(columns)
                yield from (chosen.slice(row, ROWS_AT_ONCE) for row in range(0, batch.num_rows, ROWS_AT_ONCE))

    def audio_paths(self, column: str) -> Iterator[str]:
        """Files that rows name in place of audio. The table is mapped into memory, and its audio is not touched."""
        with self._groups() as (_, groups):
            for values in (batch[column] for batch in groups):
                if not pa.types.is_struct(values.type):
                    yield from _strings(values)
                elif values.type.get_field_index("bytes") < 0:
                    yield from _strings(values.field("path"))
                else:
                    yield from _strings(values.field("path").filter(values.field("bytes").is_null()))


def _may_name_files(kind: Any) -> bool:
    """Whether an audio column of this type can hold paths."""
    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("path") >= 0)
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_all(group: Any, column: str) -> bool:
    """Whether every row of a Parquet row group holds its audio, as far as the footer says."""
    parts = [group.column(i) for i in range(group.num_columns)]
    known = [part.statistics for part in parts if part.path_in_schema == f"{column}.bytes" and part.is_stats_set]
    return any(statistics.has_null_count and statistics.null_count == 0 for statistics in known)


def _strings(values: Any) -> Iterator[str]:
    return (value for value in values.to_pylist() if isinstance(value, str) and value)


def _open(path: Path) -> _Parquet | _Arrow:
    return _Arrow(path) if path.suffix.lower() == ".arrow" else _Parquet(path)
