"""How a model's stream is laid out in time and in bits, and what that costs (paper Section 3.4, Eq. 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Bits:
    content: int
    """Tokens x bits a token."""
    position: int
    """The keep mask."""

    @property
    def total(self) -> int:
        return self.content + self.position


@dataclass(frozen=True)
class Layout:
    """All that is needed to count what a stream costs, without its model."""

    sample_rate: int
    hop_length: int
    """Samples per Stage-1 step."""
    token_bits: int
    """b of Eq. 5: bits of one code in fixed width."""
    stride: int | None
    """Steps per token at a fixed rate (no mask is sent), or None at a variable rate."""

    @property
    def frame_rate(self) -> float:
        """f_S1, Stage-1 steps a second."""
        return self.sample_rate / self.hop_length

    def steps(self, num_samples: int) -> int:
        """N, the Stage-1 steps of that many samples. The last one may be partly filled."""
        return -(-num_samples // self.hop_length)

    def bits(self, tokens: int, steps: int) -> Bits:
        """Eq. 5 in whole bits: b for each token, and at a variable rate one for each step."""
        return Bits(tokens * self.token_bits, steps if self.stride is None else 0)

    def bitrate(self, token_rate: float) -> float:
        """Eq. 5 in bits a second: B_total = f_tok b + p."""
        return token_rate * self.token_bits + (self.frame_rate if self.stride is None else 0.0)

    def fixed_mask(self, steps: int) -> npt.NDArray[np.bool_]:
        import numpy as np  # here: configurations have a layout, and `dtm-codec --help` has no time for numpy

        assert self.stride is not None
        mask = np.zeros(steps, dtype=np.bool_)
        mask[:: self.stride] = True
        return mask
