"""Samples as 16-bit numbers, little-endian wherever they are bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .audio import Samples


def to_pcm(samples: Samples) -> npt.NDArray[np.int16]:
    """Samples beyond full scale are clipped."""
    return np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2")


def from_pcm(data: bytes) -> Samples:
    """A byte too many at the end is left out."""
    return np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float32) / np.float32(32768)
