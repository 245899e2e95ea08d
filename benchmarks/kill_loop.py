"""A run that is killed again and again (benchmarks/kill_tests.py)."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

TEMPORARY = re.compile(r"\.[0-9a-f]{16}(\..+)?")
PATIENCE_S = 600.0


@dataclass
class Counts:
    """What a loop did."""

    kills: int = 0
    while_writing: int = 0
    """Of them, with a half-written file there."""
    rounds: int = 0
    acknowledged: int = 0
    """Pieces of work that were there after a kill, and still are at the end."""


def load(*modules: str) -> None:
    """Import here what every run would have to import."""
    for name in modules:
        import_module(name)


def forked(work: Callable[[], object], log: Path) -> int:
    """The id of a new process that does the work and writes what it says to `log`."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with log.open("a") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def has_ended(pid: int) -> int | None:
    """Exit code of a child that has ended."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def descendants(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                found |= {int(child)} | descendants(int(child))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE_S:g} s"
        time.sleep(0.005)


def half_written(folder: Path) -> list[Path]:
    """Temporaries, at any depth."""
    return [Path(top) / name for top, _, names in os.walk(folder) for name in names if TEMPORARY.fullmatch(name)]


def nothing_is_left(folder: Path) -> None:
    left = [p for p in folder.rglob("*") if p.name.startswith(".") or p.name.endswith(("-journal", ".damaged"))]
    assert not left, f"left behind: {left}"


def kill_again_and_again(
    start: Callable[[Path], Callable[[], object]],
    done: Callable[[Path], int],
    check: Callable[[Path], None],
    finish: Callable[[Path], None],
    folder: Path,
    kills: int,
    pause_s: float,
) -> Counts:
    """Start runs and kill them after a random number of pieces of work and a random pause of up to `pause_s`; half of
    them then live on until they write a file.

    start: gives the work on a folder. done: pieces of work that are acknowledged there. check: is called after each
    kill. finish: is called with the folder of a run that came to its end.
    """
    counts, draw = Counts(), random.Random(0)
    while counts.kills < kills:
        counts.rounds += 1
        out, log = folder / f"round-{counts.rounds}", folder / f"round-{counts.rounds}.log"
        code = None
        while code is None:
            pid = forked(start(out), log)
            code = wait_for_end(pid, out, done, draw, pause_s) if counts.kills < kills else waited(pid)
            if code is None:
                before, workers, writing = done(out), descendants(pid), half_written(out)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                counts.kills += 1
                counts.while_writing += bool(writing)
                wait_until(lambda w=workers: not any(map(is_alive, w)), "the end of all workers")
                assert done(out) >= before, f"{before} were there, {done(out)} are"
                check(out)
            assert code in (None, 0), log.read_text()[-3000:]
        counts.acknowledged += done(out)
        finish(out)
        nothing_is_left(out)
    return counts


def waited(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_for_end(pid: int, out: Path, done: Callable[[Path], int], draw: random.Random, pause_s: float) -> int | None:
    """Exit code of a process that came to its end before its time, or None when it is to be killed."""
    left_over, wanted = set(half_written(out)), done(out) + draw.choice((0, 0, 1, 1, 2, 3))
    pause, at_a_write, reached = draw.uniform(0, pause_s), draw.random() < 0.5, None
    while (code := has_ended(pid)) is None:
        if reached is None and done(out) >= wanted:
            reached = time.monotonic()
        is_time = reached is not None and time.monotonic() > reached + pause
        if is_time and (not at_a_write or set(half_written(out)) - left_over):
            return None
        time.sleep(0.003)
    return code
