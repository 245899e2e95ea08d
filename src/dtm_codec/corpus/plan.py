"""The division of a corpus into shards, written down before any work is done.

A plan follows from the corpus, the model and the rate alone. A second run makes it again and compares: if it is the
same, only the shards that are not there yet remain to be done; if not, rows of two settings would be mixed, and the run
is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..config import BackendName
from ..errors import ConfigError
from ..system.files import write_atomically
from ..validation import load
from .errors import CorpusError
from .parts import Part, Source

PLAN_FILE = "plan.json"
MIN_SHARD_SIZE, MAX_SHARD_SIZE, USUAL_SHARDS = 16, 2000, 256
"""About 256 shards, unless they get too small or too large: work spreads evenly and a kill loses little."""


@dataclass(frozen=True)
class Shard:
    """One unit of work: a part of the corpus and the file that its tokens go to."""

    part: Part
    path: Path


@dataclass(frozen=True)
class ShardPlan:
    """What must not change between a run and its continuation."""

    corpus: str
    """The source's fingerprint."""
    model_id: str
    bitrate: int | float | None  # a whole number stays one, so that messages give it as it was typed
    tau: int | float | None
    shard_size: int
    parts: tuple[Part, ...]
    token_rate: int | float | None = None
    selector: str | None = None
    effort: int = 0
    backend: str = "torch"
    """Two backends agree but for ties, so that one corpus has one."""

    @classmethod
    def settle(
        cls,
        folder: Path,
        source: Source,
        model_id: str,
        backend: BackendName,
        asked: dict[str, Any],
        shard_size: int | None = None,
    ) -> ShardPlan:
        """Make the plan and write it into `folder`, or check that it is the one that was written there before.

        asked: bitrate, token_rate, tau, selector and effort, as `DTMCodec.encode` takes them.
        """
        if shard_size is not None and shard_size < 1:
            raise CorpusError(f"shard_size = {shard_size}; allowed: >= 1")
        path = folder / PLAN_FILE
        before = cls._read(path) if path.exists() else None
        usual = min(MAX_SHARD_SIZE, max(MIN_SHARD_SIZE, (source.items or 0) // USUAL_SHARDS))
        size = shard_size or (before.shard_size if before else usual)
        parts = tuple(source.parts(size))
        plan = cls(source.fingerprint, model_id, shard_size=size, parts=parts, backend=backend, **asked)
        if not plan.parts:
            raise CorpusError(f"the corpus in {source.root} is empty")
        if before is None:
            write_atomically(path, (json.dumps(asdict(plan), indent=1) + "\n").encode())
        elif before != plan:
            name = next(f.name for f in fields(cls) if getattr(before, f.name) != getattr(plan, f.name))
            old, new = (_plain(getattr(made, name)) for made in (before, plan))
            values = "" if name == "parts" else f" {old}, not {new}"
            changed = "; a file was added, removed or written anew" if name == "corpus" else ""
            allowed = "use the same to go on, or another folder"
            raise CorpusError(f"{folder} was begun with {name}{values}{changed}; {allowed}")
        return plan

    @classmethod
    def _read(cls, path: Path) -> ShardPlan:
        try:
            return load(cls, path)
        except ConfigError as error:
            raise CorpusError(f"no plan of this version: {error}") from error

    def shards(self, folder: Path) -> Iterator[Shard]:
        """The shards and their files, named as `datasets` names those of a split."""
        for index, part in enumerate(self.parts):
            yield Shard(part, folder / f"train-{index:05d}-of-{len(self.parts):05d}.parquet")


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
