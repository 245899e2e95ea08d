"""A shard of tokens as a Parquet file: columns that any reader of Parquet understands, and a report in the footer.

The report (counts and failures) travels inside the file, so that one atomic rename publishes rows and report together,
and the same work always gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..encoded import Encoded, Layout
from ..errors import ConfigError
from ..optional import import_optional
from ..speech.utterance import Failure, Utterance
from ..validation import build
from .errors import CorpusError

pa, pq = import_optional("pyarrow", "corpus"), import_optional("pyarrow.parquet", "corpus")

MAX_DURATION = np.iinfo(np.uint16).max
"""Steps from one token to the next that the column can hold: 11 minutes at 100 Hz."""

REPORT_KEY = b"dtm_codec"

ROW_GROUP_TOKENS = 1 << 22
"""Rows are written out when they hold this many tokens: a shard of hour-long recordings needs no more memory."""


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
    except (pa.ArrowException, OSError, KeyError, TypeError, ConfigError) as error:
        raise CorpusError(f"{path} is no shard of tokens: {error}") from error


def read_rows(path: Path, layout: Layout, rows_at_once: int = 256) -> Iterator[tuple[str, Encoded]]:
    columns = ["id", "tokens", "durations", "num_samples", "model_id"]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(rows_at_once, columns=columns):
            tokens, durations = batch["tokens"], batch["durations"]
            for row in range(batch.num_rows):
                yield (
                    batch["id"][row].as_py(),
                    Encoded.from_durations(
                        tokens[row].values.to_numpy(),
                        durations[row].values.to_numpy().astype(np.int64),
                        batch["model_id"][row].as_py(),
                        layout,
                        batch["num_samples"][row].as_py(),
                    ),
                )
