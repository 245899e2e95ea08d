"""What a `.dtm` file costs, under the names that `info --json` prints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..bitstream.container import FileInfo
    from ..config import CodecConfig
    from ..encoded import Mode


@dataclass(frozen=True)
class FileFacts:
    """Figures of one file; the fields are the keys of the JSON report."""

    duration_s: float
    num_samples: int
    model: str
    steps: int
    """N, Stage-1 steps."""
    tokens: int
    """K, kept steps."""
    keep_ratio: float
    content_bps: float
    position_bps: float
    total_bps: float
    """Nominal, Eq. 5 of the paper."""
    written_bps: float
    """The payload as written, after entropy coding."""
    overhead_bytes: int
    """Header and checksum."""
    mode: Mode

    @property
    def rate_line(self) -> str:
        """The gist on one line."""
        nominal = f"{self.total_bps:.0f} nominal ({self.content_bps:.0f} content + {self.position_bps:.0f} position)"
        return f"{self.duration_s:.2f} s, {self.written_bps:.0f} bps written ({self.mode}), {nominal}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        token_rate = self.tokens / self.duration_s
        return [
            ("model", self.model),
            ("duration", f"{self.duration_s:.3f} s, {self.num_samples} samples"),
            ("tokens", f"{self.tokens} of {self.steps} steps kept ({self.keep_ratio:.3f}), {token_rate:.2f} a second"),
            ("nominal", f"{self.total_bps:.1f} bps: {self.content_bps:.1f} content + {self.position_bps:.1f} position"),
            ("written", f"{self.written_bps:.1f} bps, {self.mode}"),
            ("overhead", f"{self.overhead_bytes} bytes"),
        ]


def facts_of(info: FileInfo) -> FileFacts:
    seconds = info.num_samples / info.layout.sample_rate
    bits = info.layout.bits(info.tokens, info.steps)
    return FileFacts(
        duration_s=seconds,
        num_samples=info.num_samples,
        model=info.model_id,
        steps=info.steps,
        tokens=info.tokens,
        keep_ratio=info.tokens / info.steps,
        content_bps=bits.content / seconds,
        position_bps=bits.position / seconds,
        total_bps=bits.total / seconds,
        written_bps=(info.mask_bits + info.token_bits_written) / seconds,
        overhead_bytes=info.overhead_bytes,
        mode=info.mode,
    )


def latency_text(config: CodecConfig) -> str:
    """What a stream waits for by its construction."""
    from ..live.latency import latency_of

    total = latency_of(config).total
    return "no bound" if math.isinf(total) else f"{total:.0f} ms and a packet"
