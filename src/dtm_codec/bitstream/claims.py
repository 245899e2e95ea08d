"""How much audio a file may claim. A few bytes can stand for hours of silence, and decoding these takes a while.

What a file says about its length is believed up to ten minutes, and beyond that a second for every token and every four
bytes. Speech has at least twenty times as many. An hour of digital silence is beyond it and must be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BitstreamError
from .header import Header

FREE_SECONDS = 600.0
SECONDS_A_TOKEN = 1.0
SECONDS_A_BYTE = 0.25

_FASTEST = 200.0
"""Steps a second: a file of more says little about its seconds, so its steps are counted."""


@dataclass(frozen=True)
class ClaimLimit:
    """What readers believe."""

    max_hours: float | None = None
    """Believe exactly so much, instead."""

    def check(self, header: Header, file_bytes: int, tokens: int | None = None) -> None:
        """Refuse a file that claims more. Without tokens, as before a mask is decoded, its bytes alone have to do."""
        claimed = max(header.num_samples / header.layout.sample_rate, header.steps / _FASTEST)
        by_tokens = file_bytes * SECONDS_A_BYTE if tokens is None else tokens * SECONDS_A_TOKEN
        allowed = FREE_SECONDS + min(file_bytes * SECONDS_A_BYTE, by_tokens)
        if self.max_hours is not None:
            allowed = 3600 * self.max_hours
        if claimed > allowed:
            size = f"{file_bytes} bytes" + ("" if tokens is None else f" with {tokens} tokens")
            raise BitstreamError(
                f"{size} that claim {claimed / 3600:.2f} hours; allowed: {allowed / 3600:.2f} hours, or --max-hours "
                "(max_hours in Python)"
            )
