"""What makes many crops of one recording: where it is cut, how loud it is, and how fast it is played."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import soxr

from ..speech.audio import Samples
from .config import DataConfig


def draw_crop(
    read: Callable[[int, int], Samples], available: int, length: int, config: DataConfig, draw: np.random.Generator
) -> tuple[Samples, int]:
    """A random crop of `length` samples, and where in its recording it starts.

    read: start, length -> at most so many samples of the recording, which has `available`.
    """
    speed = draw_speed(config.speed, draw)
    needed = round(length * speed)
    start = int(draw.integers(max(1, available - needed + 1)))
    audio = at_speed(read(start, needed), speed)[:length]
    audio = np.pad(audio, (0, length - audio.size))  # a short recording ends in silence
    return with_gain(audio, config.gain_db, draw), start


def draw_speed(speeds: Sequence[float], draw: np.random.Generator) -> float:
    """A factor between the two, with as many below 1 as above it where they are 1 / f and f."""
    low, high = map(math.log, speeds)
    return math.exp(draw.uniform(low, high)) if low < high else speeds[0]


def at_speed(audio: Samples, speed: float) -> Samples:
    """Faster by that factor, and with it higher: pitch and formants are those of another speaker."""
    if speed == 1:
        return audio
    resampled: Samples = soxr.resample(audio, speed, 1.0).astype(np.float32, copy=False)
    return resampled


def with_gain(audio: Samples, gain_db: Sequence[float], draw: np.random.Generator) -> Samples:
    """Change the level by a random number of decibels, but not beyond full scale."""
    gain = 10 ** (draw.uniform(gain_db[0], gain_db[1]) / 20)
    peak = float(np.abs(audio).max(initial=0.0))
    return (audio * np.float32(min(gain, 1 / peak) if gain > 1 and peak > 0 else gain)).astype(np.float32, copy=False)
