"""What a system under test is: `encode(audio) -> Coded`, `decode(Coded) -> audio`."""

from __future__ import annotations

import re
import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...layout import Bits
from ...metrics.base import SAMPLE_RATE
from ...speech.audio import Samples


@dataclass(frozen=True, eq=False)
class Coded:
    payload: Any
    """What the system's decoder takes."""
    num_samples: int
    """Length of the utterance at 16 kHz."""
    bits: Bits | None
    """What is transmitted, timing side information apart; containers, file headers and padding not counted.

    None if nobody knows: of a folder of audio, for example."""
    written: int | None
    """Bits of the payload as its format writes it: entropy coded, or padded to whole bytes."""

    @property
    def duration_s(self) -> float:
        return self.num_samples / SAMPLE_RATE


class System(ABC):
    """A codec, or what stands beside codecs in a table."""

    name: str
    """The specification it was built from; its key in results."""
    title: str
    """Its name in tables."""
    series: str
    """Systems of one series differ in rate only: one line in a rate-distortion figure."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Version of program or weights: results of another identity are not mixed in."""

    @property
    def missing(self) -> str:
        """What would have to be downloaded first; empty if nothing."""
        return ""

    @property
    def settled_name(self) -> str:
        """Name that builds the same system in another process, without calibrating again."""
        return self.name

    @property
    def parameters(self) -> int | None:
        """Trainable numbers, of neural codecs."""
        return None

    def to(self, device: str) -> System:
        """The same system with its network on `device`. Programs and filters run on the CPU whatever is asked."""
        return self

    def expect(self, utterances: Sequence[str]) -> list[str]:
        """What is odd before anything is run, a line each. Raises if nothing can be had for these ids at all."""
        return []

    def round_trip(self, audio: Samples, utterance: str) -> tuple[Coded, Samples]:
        """What is transmitted and what is heard. utterance: its id, for systems whose audio is there already."""
        coded = self.encode(audio)
        return coded, self.decode(coded)

    @abstractmethod
    def encode(self, audio: Samples) -> Coded:
        """audio: (T,) float32 at 16 kHz"""

    @abstractmethod
    def decode(self, coded: Coded) -> Samples:
        """(T,) float32 at 16 kHz, as long as what was encoded and in time with it."""

    def clock(self) -> float:
        """Processor seconds that its work has taken; only differences count."""
        return cpu_seconds()

    def elapsed(self) -> float:
        """Seconds on the clock that its work has taken; only differences count."""
        return time.perf_counter()

    def peak_mb(self) -> float:
        """Peak resident memory of the process that does its work."""
        return peak_mb()


def cpu_seconds() -> float:
    """Processor time of this process and the programs it ran: on one thread the wall clock of an idle machine."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_mb(pid: int | None = None) -> float:
    """Peak resident memory of a process in MB; without a number, of this one."""
    status = Path(f"/proc/{pid or 'self'}/status")
    if status.exists():  # ru_maxrss of a new process starts at its parent's on Linux; this does not
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def fit(audio: Samples, num_samples: int, delay: int = 0) -> Samples:
    """Cut the first `delay` samples, then cut or pad to `num_samples`."""
    audio = np.asarray(audio, np.float32)[delay : delay + num_samples]
    return np.pad(audio, (0, num_samples - audio.size))
