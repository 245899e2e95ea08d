"""One crop of a recording: where it is cut, and how loud it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..speech.audio import Samples
from .config import DataConfig


def draw_crop(
    read: Callable[[int, int], Samples], available: int, length: int, config: DataConfig, draw: np.random.Generator
) -> tuple[Samples, int]:
    """A random crop of `length` samples, and where in its recording it starts.

    read: start, length -> at most so many samples of the recording, which has `available`.
    """
    start = int(draw.integers(max(1, available - length + 1)))
    audio = read(start, length)
    audio = np.pad(audio, (0, length - audio.size))  # a short recording ends in silence
    return with_gain(audio, config.gain_db, draw), start


def with_gain(audio: Samples, gain_db: Sequence[float], draw: np.random.Generator) -> Samples:
    """Change the level by a random number of decibels, but not beyond full scale."""
    gain = 10 ** (draw.uniform(gain_db[0], gain_db[1]) / 20)
    peak = float(np.abs(audio).max(initial=0.0))
    return (audio * np.float32(min(gain, 1 / peak) if gain > 1 and peak > 0 else gain)).astype(np.float32, copy=False)
