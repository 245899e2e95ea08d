"""How many threads to compute with on a machine that others use too.

A step of the network is shared out evenly, and all threads wait for the slowest. Beside a busy core, two threads on two
cores may take longer than one, the more so if the waiting ones spin. So waiting threads sleep, and there are only as
many threads as cores are free.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_CLOCK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_STATISTICS = Path("/proc/stat")

SHORTEST_S = 0.1
"""The system counts in hundredths of a second, for each core: over less time, one of them more or less is too much."""


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def asked_threads() -> int | None:
    """What `OMP_NUM_THREADS` asks for, of which the first number counts; None if nothing that can be."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return int(asked) or None if asked.isdecimal() else None


def let_threads_sleep() -> None:
    """Threads that spin slow down whoever else is at work. The user's own wish goes before. Must come before torch is
    loaded."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@dataclass(frozen=True)
class Load:
    """What the cores have done up to a moment, in seconds."""

    wall: float
    busy: float
    """Of all processes on the cores that this one may use. Work at low priority yields to ours and is not counted."""
    own: float

    @classmethod
    def now(cls) -> Load:
        return cls(time.perf_counter(), _busy_seconds(), time.process_time())

    def free_cores(self, since: Load) -> float:
        """Cores that others left free since then; all of them if it was too short a time to tell."""
        wall = self.wall - since.wall
        others = (self.busy - since.busy) - (self.own - since.own)
        return available_cores() - (max(0.0, others) / wall if wall > SHORTEST_S else 0.0)


_began: Load | None = None


def watch_load() -> None:
    """Begin to see what others do. The command line calls it first of all: what it does before it computes is short."""
    global _began
    _began = Load.now()


def _busy_seconds() -> float:
    """0 where the system does not tell."""
    try:
        lines = _STATISTICS.read_text().splitlines()
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return 0.0
    ticks = 0
    for name, *columns in (line.split() for line in lines if line):
        if name in mine:
            user, _, system, _, _, *interrupts = map(int, columns[:8])
            ticks += user + system + sum(interrupts)
    return ticks / _CLOCK


def free_cores() -> int:
    """Whole cores that were free since `watch_load`, at least one. All of them if nobody has watched."""
    return available_cores() if _began is None else max(1, round(Load.now().free_cores(_began)))
