"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Result:
    """What a command leaves."""

    code: int
    stdout: bytes
    stderr: str


Run = Callable[..., Result]
"""Arguments, and `stdin=bytes` -> Result"""


def sweep(seconds: float = 1.0, rate: int = 16_000) -> np.ndarray:
    """A tone that rises from 100 Hz."""
    time = np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * (100 + 400 * time) * time)).astype(np.float32)
