"""`models`: what can be loaded, and what it costs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from . import options, terminal

if TYPE_CHECKING:
    from ..config import CodecConfig


@dataclass(frozen=True)
class ModelFacts:
    """One row of the list; the fields are the keys of the JSON report."""

    name: str
    """What `--model` takes; a preset is untrained, and goes as 'random:NAME'."""
    kind: str
    """bundled: trained, in the package. preset: a configuration to train."""
    parameters: int
    frame_rate: float
    """Stage-1 steps a second."""
    token_rate: float
    """Tokens a second at the configured keep ratio."""
    bps: float
    """Total bits a second at that rate."""
    selector: str
    latency_ms: float | None
    """Algorithmic latency of a stream without its packet; null: it has no bound."""


def models(as_json: options.Json = False) -> None:
    """List the bundled models and the presets that can be trained."""
    from ..config import PRESETS
    from ..models import hub

    rows = [_facts(name, "bundled", hub.read_folder(folder).config) for name, folder in hub.bundled_models().items()]
    rows += [_facts(name, "preset", config) for name, config in PRESETS.items()]
    if as_json:
        terminal.say(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("name", "kind", "selector"):
        table.add_column(title)
    for title in ("parameters", "frame rate", "token rate", "bps", "latency"):
        table.add_column(title, justify="right")
    for row in rows:
        rates = (f"{row.frame_rate:.4g} Hz", f"{row.token_rate:.4g} Hz", f"{row.bps:.0f}")
        latency = "no bound" if row.latency_ms is None else f"{row.latency_ms:.0f} ms"
        table.add_row(row.name, row.kind, row.selector, f"{row.parameters / 1e6:.1f} M", *rates, latency)
    terminal.console().print(table)


def _facts(name: str, kind: str, config: CodecConfig) -> ModelFacts:
    from ..live.latency import latency_of
    from ..models.weights import num_parameters

    token_rate = config.frame_rate / config.stride if config.is_fixed_rate else config.frame_rate * config.keep_ratio
    bps = config.layout.bitrate(token_rate)
    total = latency_of(config).total
    return ModelFacts(
        name,
        kind,
        num_parameters(config),
        config.frame_rate,
        token_rate,
        bps,
        config.selector.name,
        None if math.isinf(total) else total,
    )
