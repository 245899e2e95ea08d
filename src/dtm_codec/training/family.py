"""A family of models that trains itself: what is missing, in order, one run a core.

A family is a YAML file that names the configurations of its runs (`configs/families/`). Each run is a process of its
own, pinned to its cores, that writes `train.log` into its folder. However the queue ends, runs that are under way
end with a checkpoint, and the same command goes on from there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

from .. import validation
from ..errors import ConfigError, DTMCodecError
from ..validation import Validated, require
from . import checkpoints
from .config import TrainConfig, load_config
from .logs import METRICS_FILE, read_metrics
from .run import is_exported, train

LOG_FILE = "train.log"
POLL_SECONDS = 1.0

State = Literal["waiting", "training", "done", "failed"]


@dataclass(frozen=True)
class Member(Validated):
    """One configuration of a family."""

    config: str
    """YAML file, relative to the family's."""
    seeds: tuple[int, ...] = ()
    """A run for each; the first has the model's name, the others NAME-seedN. Default: the configuration's seed."""
    after: str | None = None
    """The run that this one starts from, which must be done before."""


@dataclass(frozen=True)
class Family(Validated):
    """What to train, in order of importance."""

    runs: tuple[Member, ...]
    settings: tuple[str, ...] = ()
    """`key=value` for all runs, so that they have the same budget."""
    fine_tuning: tuple[str, ...] = ()
    """The same on top of it for runs that start from another one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.runs), "runs", list(self.runs), "at least one")


@dataclass
class FamilyRun:
    """A run of the queue and how far it is."""

    name: str
    folder: Path
    config: TrainConfig
    after: str | None
    state: State = "waiting"
    steps: int = 0
    seconds_a_step: float | None = None

    def look(self) -> None:
        """Take progress from what the run has written."""
        lines = [line for line in read_metrics(self.folder / METRICS_FILE) if "audio_per_second" in line]
        self.steps = max(lines[-1]["step"] if lines else 0, self._saved_steps())
        if lines:
            batch_seconds = self.config.data.batch_size * self.config.data.crop_seconds
            self.seconds_a_step = batch_seconds / lines[-1]["audio_per_second"]

    def is_done(self) -> bool:
        return self._saved_steps() >= self.config.max_steps and is_exported(self.folder)

    def _saved_steps(self) -> int:
        """Steps of the last checkpoint. A published one has no number of steps in its name; the run will resume it."""
        return max(map(checkpoints.step_of, checkpoints.list_checkpoints(self.folder)), default=0)


def find_family(name: str) -> Path:
    """The file of a family: its path, or `configs/families/NAME.yaml` below the current folder."""
    named = Path("configs") / "families" / f"{name}.yaml"
    for path in (Path(name), named):
        if path.is_file():
            return path
    raise ConfigError(f"no family {name!r}; allowed: a YAML file, or a name for which there is {named}")


def plan(family: Path, folder: Path, settings: Sequence[str] = ()) -> list[FamilyRun]:
    """All runs of a family in order, each with its whole configuration. `settings` come on top of the family's."""
    described = validation.load(Family, family)
    runs: list[FamilyRun] = []
    for member, number, seed in _in_order(described.runs):
        own = described.settings if member.after is None else (*described.settings, *described.fine_tuning)
        chosen = [*own, *settings]
        if member.after is not None:
            chosen.append(f"init_from={json.dumps(str(folder / member.after))}")
        if seed is not None:
            chosen.append(f"seed={seed}")
        config = load_config(family.parent / member.config, chosen)
        name = config.model.name if number == 0 else f"{config.model.name}-seed{seed}"
        runs.append(FamilyRun(name, folder / name, config, member.after))
    names = [run.name for run in runs]
    for index, run in enumerate(runs):
        require(names.count(run.name) == 1, "runs", run.name, "every run once")
        require(run.after is None or run.after in names[:index], "after", run.after, "a run that stands before it")
    return runs


def without(runs: Sequence[FamilyRun], names: Collection[str]) -> list[FamilyRun]:
    """The runs but for those names; what another one starts from stays."""
    needed = {run.after for run in runs if run.name not in names}
    return [run for run in runs if run.name not in names or run.name in needed]


def _in_order(members: Sequence[Member]) -> Iterator[tuple[Member, int, int | None]]:
    """Each run's member, number and seed. Neighbours with the same seeds take turns: all with the first, then all with
    the second. So a queue that is stopped early has whole pairs to compare."""
    for seeds, neighbours in groupby(members, key=lambda member: member.seeds or (None,)):
        group = list(neighbours)
        for number, seed in enumerate(seeds):
            yield from ((member, number, seed) for member in group)


def train_family(
    runs: Sequence[FamilyRun], cores: Sequence[Sequence[int]], seconds: float, show: Callable[[], None]
) -> None:
    """Train what is missing, as many runs at a time as there are groups of `cores`, for at most `seconds`.

    show: called every second and whenever a run's state changes. A run that fails does not stop the others.
    """
    context = multiprocessing.get_context("spawn")
    watched, held = context.Pipe(duplex=False)  # closes with this process, even one that is killed
    under_way: dict[int, tuple[FamilyRun, BaseProcess]] = {}
    for run in runs:
        run.look()
        run.state = "done" if run.is_done() else "waiting"
    deadline = time.monotonic() + seconds
    with held:
        try:
            while time.monotonic() < deadline:
                for slot in [slot for slot, (_, process) in under_way.items() if not process.is_alive()]:
                    run, process = under_way.pop(slot)
                    run.look()
                    run.state = "done" if run.is_done() else "failed"
                for slot in set(range(len(cores))) - set(under_way):
                    if (following := _next(runs)) is not None:
                        process = context.Process(target=_train, args=(following, cores[slot], watched))
                        process.start()
                        following.state = "training"
                        under_way[slot] = following, process
                if not under_way:
                    break
                for run, _ in under_way.values():
                    run.look()
                show()
                time.sleep(POLL_SECONDS)
        finally:
            held.close()  # tells the runs to end, with a checkpoint
            for run, process in under_way.values():
                process.join()
                run.look()
                run.state = "done" if run.is_done() else "waiting"
            show()
    failed = [run for run in runs if run.state == "failed"]
    if failed:
        raise DTMCodecError("; ".join(f"{run.name} failed, see {run.folder / LOG_FILE}" for run in failed))


def seconds_left(runs: Sequence[FamilyRun], slots: int) -> float | None:
    """Until all runs are done, by the speed of those that have begun."""
    speeds = [run.seconds_a_step for run in runs if run.seconds_a_step is not None]
    if not speeds:
        return None
    usual = sum(speeds) / len(speeds)
    missing = [run for run in runs if run.state in ("waiting", "training")]
    left = [(run.config.max_steps - run.steps) * (run.seconds_a_step or usual) for run in missing]
    return max(sum(left) / slots, max(left, default=0.0))


def _next(runs: Sequence[FamilyRun]) -> FamilyRun | None:
    """The first run that can begin: what it starts from is done."""
    done = {run.name for run in runs if run.state == "done"}
    ready = (run for run in runs if run.state == "waiting" and (run.after is None or run.after in done))
    return next(ready, None)


def _train(run: FamilyRun, cores: Sequence[int], watched: Connection) -> None:
    """A run in its own process: on its cores, with its log, ending with a checkpoint when the queue ends."""
    os.setsid()  # Ctrl-C in the terminal is for the queue, which then ends its runs
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    import torch

    torch.set_num_threads(len(cores))
    run.folder.mkdir(parents=True, exist_ok=True)
    with (run.folder / LOG_FILE).open("a") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())

    def end_with_queue() -> None:
        watched.poll(None)
        with suppress(ProcessLookupError):
            os.kill(os.getpid(), signal.SIGTERM)  # the run ends after its step, with a checkpoint

    threading.Thread(target=end_with_queue, daemon=True).start()
    try:
        train(run.config, run.folder, resume=True)
    except (DTMCodecError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
