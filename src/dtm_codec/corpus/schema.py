"""A shard of tokens as a Parquet file: columns that any reader of Parquet understands, and a report in the footer.

The report (counts and failures) travels inside the file, so that one atomic rename publishes rows and report together,
and the same work always gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..encoded import Encoded
from ..errors import ConfigError
from ..layout import Layout
from ..speech.utterance import Failure, Utterance
from ..system.optional import import_optional
from ..validation import build
from .errors import CorpusError

pa, pq = import_optional("pyarrow", "corpus"), import_optional("pyarrow.parquet", "corpus")

MAX_DURATION = np.iinfo(np.uint16).max
"""Steps from one token to the next that the column can hold: 11 minutes at 100 Hz."""

REPORT_KEY = b"dtm_codec"

ROW_GROUP_TOKENS = 1 << 22
"""Rows are written out when they hold this many tokens: a shard of hour-long recordings needs no more memory."""

ROWS_AT_ONCE = 256
"""Rows that are read from a row group at a time."""


def schema(codebook_size: int) -> Any:
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("tokens", pa.list_(pa.uint16() if codebook_size <= 1 << 16 else pa.uint32()), nullable=False),
            pa.field("durations", pa.list_(pa.uint16()), nullable=False),
            pa.field("num_samples", pa.int64(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("speaker", pa.string()),
            pa.field("model_id", pa.string(), nullable=False),
        ]
    )


@dataclass(frozen=True)
class ShardReport:
    """What became of the items of one or more shards."""

    utterances: int = 0
    num_samples: int = 0
    steps: int = 0
    tokens: int = 0
    content_bits: int = 0
    position_bits: int = 0
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: ShardReport) -> ShardReport:
        return ShardReport(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Stamp:
    """What made a shard: the model and how its streams are laid out."""

    model: str
    """As `DTMCodec.from_pretrained` takes it."""
    model_id: str
    codebook_size: int
    layout: Layout


class ShardWriter:
    """Rows into one Parquet file (zstd), a row group at a time."""

    def __init__(self, path: Path, stamp: Stamp) -> None:
        self._stamp = stamp
        self._schema = schema(stamp.codebook_size)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._held_tokens = 0
        self._total = ShardReport()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, utterance: Utterance, encoded: Encoded) -> None:
        """One row; a span that the column cannot hold is refused, since cutting it would change the tokens."""
        durations = encoded.durations
        if durations.max() > MAX_DURATION:
            raise CorpusError(
                f"a token spans {durations.max()} steps; allowed: up to {MAX_DURATION}: "
                "cut the recording, lower tau, or use a model whose selector has s_max"
            )
        self._rows.append(
            {
                "id": utterance.id,
                "tokens": encoded.tokens.astype(np.uint32),
                "durations": durations.astype(np.uint16),
                "num_samples": encoded.num_samples,
                "text": utterance.text,
                "speaker": utterance.speaker,
                "model_id": encoded.model_id,
            }
        )
        bits = encoded.bits
        self._total += ShardReport(
            1, encoded.num_samples, encoded.mask.size, encoded.tokens.size, bits.content, bits.position
        )
        self._held_tokens += encoded.tokens.size
        if self._held_tokens >= ROW_GROUP_TOKENS:
            self._flush()

    def finish(self, failures: Iterable[Failure]) -> ShardReport:
        """Write the last rows and the report."""
        self._flush()
        report = self._total + ShardReport(failures=tuple(failures))
        footer = json.dumps({"stamp": asdict(self._stamp), "report": asdict(report)})
        self._writer.add_key_value_metadata({REPORT_KEY: footer})
        return report

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows, self._held_tokens = [], 0


def read_footer(path: Path) -> tuple[Stamp, ShardReport]:
    """Who made a shard, and what became of its items."""
    try:
        footer = json.loads(pq.read_metadata(path).metadata[REPORT_KEY])
        return build(Stamp, footer["stamp"]), build(ShardReport, footer["report"])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise CorpusError(f"{path} is no shard of tokens: {error}") from error


class Row(NamedTuple):
    """One utterance of a shard."""

    id: str
    encoded: Encoded
    text: str | None
    speaker: str | None


def find_shards(source: str | PathLike[str]) -> list[Path]:
    """A Parquet file, or all under a folder."""
    paths = [Path(source)] if Path(source).is_file() else sorted(Path(source).rglob("[!.]*.parquet"))
    if not paths:
        raise CorpusError(f"no Parquet file at {source}")
    return paths


def read_table(path: Path) -> Any:
    """All rows of a shard as a table for `table_row`."""
    return pq.read_table(path).combine_chunks()


def table_row(table: Any, number: int, layout: Layout) -> Row:
    """table: of `read_table`, or a batch of rows"""
    text, speaker = (table[name][number].as_py() for name in ("text", "speaker"))
    encoded = Encoded.from_durations(
        table["tokens"][number].values.to_numpy(),
        table["durations"][number].values.to_numpy().astype(np.int64),
        table["model_id"][number].as_py(),
        layout,
        table["num_samples"][number].as_py(),
    )
    return Row(table["id"][number].as_py(), encoded, text, speaker)


def read_rows(path: Path, layout: Layout, *, first: int = 0, last: int | None = None) -> Iterator[Row]:
    """Rows first ... last - 1, all by default. Row groups that have none of them are not read."""
    with pq.ParquetFile(path) as file:
        stop = file.metadata.num_rows if last is None else last
        begin = 0
        for group in range(file.num_row_groups):
            end = begin + file.metadata.row_group(group).num_rows
            if begin < stop and end > first:
                at = begin
                for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group]):
                    for number in range(max(first - at, 0), min(stop - at, batch.num_rows)):
                        yield table_row(batch, number, layout)
                    at += batch.num_rows
            begin = end
