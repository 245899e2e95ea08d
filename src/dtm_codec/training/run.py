"""A run from its first step to its last: data, logs, checkpoints, dev scores, and a clean end."""

from __future__ import annotations

import json
import logging
import math
import signal
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..codec import DTMCodec
from ..errors import DataError
from ..metrics import build_all
from ..models.hub import CONFIG_FILE
from ..speech.audio import Samples
from ..system.files import write_atomically
from ..system.locks import FolderInUseError, folder_in_use
from ..system.optional import import_optional
from . import checkpoints, dev, precision
from .config import TrainConfig
from .data import READER_DIED, Batch, batches, find_utterances, is_shards
from .deadline import Deadline
from .fsdp import sharding_strategy
from .logs import RunLog, log_to_console, plot_losses
from .publishing import averaged_codec, token_statistics
from .trainer import Trainer, TrainingError

log = logging.getLogger(__name__)

RUN_FILE = "run.json"
"""The run's configuration; a model's own is `config.json`, and a published model can be trained on where it lies."""

EXPORT = "export"
"""The folder of the trained model."""

REHEARSED_MINUTES = 0.1
"""Speech whose token statistics are taken to see how long that takes."""


def train(config: TrainConfig, out: str | Path, *, resume: bool = False, max_minutes: float = math.inf) -> Path:
    """Train to `config.max_steps` or for `max_minutes`, whichever is first; returns the last checkpoint.

    `max_minutes` are for all of it: after them the checkpoint, the exported model and the dev scores are there.
    SIGINT and SIGTERM end the run after the current step, with a checkpoint; a second one ends it at once.
    """
    deadline = Deadline(max_minutes)
    lightning = import_optional("lightning_fabric", "train")
    if config.data.train is None:
        raise DataError("no training data; give --data or data.train")
    folder = Path(out)
    if checkpoints.latest(folder) is not None and not resume:
        raise TrainingError(f"{folder} holds a run already; give --resume to go on with it, or another folder")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    fabric = lightning.Fabric(
        accelerator=config.accelerator,
        devices="auto" if config.devices is None else config.devices,
        num_nodes=config.num_nodes,
        strategy=sharding_strategy() if config.strategy == "fsdp" else config.strategy,
        precision=precision.resolve(config.precision, config.accelerator),
    )
    if fabric.device.type == "mps":
        raise TrainingError("accelerator = mps, which has no 64-bit numbers; allowed: cpu, cuda")
    fabric.launch()
    if fabric.is_global_zero:
        log_to_console()
    with _in_use(folder, fabric):
        last = state = None
        if fabric.is_global_zero and checkpoints.latest(folder) is not None:
            last, state = checkpoints.load_newest(folder)
        last = fabric.broadcast(last)  # one decides which is whole
        trainer = Trainer(config, fabric, resumed=last is not None)
        if last is not None:
            trainer.load_state(state or checkpoints.load(last))
            log.info("resumed from %s", last)
        del state
        return Run(trainer, folder, deadline).until(config.max_steps)


def is_exported(folder: Path) -> bool:
    """Whether a run's export is of its last checkpoint."""
    last, written_last = checkpoints.latest(folder), folder / EXPORT / CONFIG_FILE
    return last is not None and written_last.exists() and written_last.stat().st_mtime >= last.stat().st_mtime


@contextmanager
def _in_use(folder: Path, fabric: Any) -> Iterator[None]:
    """The first process has the folder for all of the run's. If it cannot have it, all of them say why."""
    with ExitStack() as held:
        refusal = None
        if fabric.is_global_zero:
            try:
                held.enter_context(folder_in_use(folder))
            except FolderInUseError as error:
                refusal = str(error)
        refusal = fabric.broadcast(refusal)
        if refusal is not None:
            raise FolderInUseError(refusal)
        yield


class Run:
    """A trainer in time: data, logs, checkpoints, dev scores, and a clean end."""

    def __init__(self, trainer: Trainer, folder: Path, deadline: Deadline) -> None:
        self.trainer = trainer
        self.folder = folder
        self.deadline = deadline
        self.config = trainer.config
        self.fabric = trainer.fabric
        self._dev_set: list[Samples] = []
        self._metrics = build_all(self.config.dev_metrics)
        if self.fabric.is_global_zero:
            write_atomically(folder / RUN_FILE, f"{json.dumps(self.config.to_dict(), indent=2)}\n".encode())
            if self.config.data.dev is not None and self.config.dev_utterances:
                rate = self.config.model.sample_rate
                self._dev_set = dev.load_dev_set(self.config.data.dev, self.config.dev_utterances, rate)
                for metric in self._metrics:
                    metric.load()  # what is missing is better known now than after an hour

    def until(self, max_steps: int) -> Path:
        """Train. However it ends, but for a kill, there is a checkpoint of the last step; it is written first."""
        config, trainer, deadline = self.config, self.trainer, self.deadline
        saved = time.monotonic()
        rehearsed = not deadline.is_set
        speed = Speedometer(config.data.batch_size * config.crop_samples / config.model.sample_rate)
        run_log = RunLog(self.folder, config, trainer.step, deadline, enabled=self.fabric.is_global_zero)
        with _stop_signals() as stopped, run_log, closing(self._batches()) as stream:
            # a run that was killed after a checkpoint lacks what comes after it
            unexported, unscored = self._agreed(*self._unfinished(run_log, trainer.step >= max_steps))
            if unexported:
                self._save(run_log, export=True, final=True)
            if unexported or unscored:
                self._evaluate(run_log)
            elif self.fabric.is_global_zero and trainer.step >= max_steps:
                plot_losses(self.folder)  # comes last, so a kill may have come before it
            while trainer.step < max_steps:
                try:
                    with deadline.measured("step"):
                        metrics = trainer.train_step(next(stream))
                except TrainingError as error:
                    last = checkpoints.latest(self.folder)
                    raise TrainingError(f"{error}; last good checkpoint: {last or 'none yet'}") from None
                except RuntimeError as error:  # a signal handler of torch's raises this, wherever we are
                    if "DataLoader worker" not in str(error):
                        raise
                    raise DataError(READER_DIED) from None
                step = trainer.step
                metrics |= {"audio_per_second": speed.tick()}
                if step % config.log_every == 0:
                    run_log.metrics(step, metrics)
                    run_log.progress(step, _status(metrics))
                waited, over, interrupted = self._agreed(
                    time.monotonic() - saved >= 60 * config.checkpoint_minutes,
                    deadline.is_near(),
                    bool(stopped),
                )
                over = over or interrupted or step == max_steps
                kept = step % config.keep_every == 0
                if not over and not rehearsed:
                    self._rehearse(run_log)
                    rehearsed = True
                if over or waited or step % config.checkpoint_every == 0 or kept:
                    self._save(run_log, export=over or kept, final=step == max_steps or (over and not interrupted))
                    saved = time.monotonic()
                if step % config.dev_every == 0 or (over and not interrupted):
                    self._evaluate(run_log)
                if over:
                    break
        last = checkpoints.latest(self.folder)
        assert last is not None
        return last

    def _batches(self) -> Generator[Batch, None, None]:
        assert self.config.data.train is not None
        return batches(
            self.config.data.train,
            self.config.data,
            sample_rate=self.config.model.sample_rate,
            crop_samples=self.config.crop_samples,
            seed=self.config.seed,
            step=self.trainer.step,
            rank=self.fabric.global_rank,
            world=self.fabric.world_size,
        )

    def _agreed(self, *flags: bool) -> list[bool]:
        """What any process found is true for all: clocks and signals differ."""
        if self.fabric.world_size == 1:
            return list(flags)
        return [total > 0 for total in self.fabric.all_reduce(torch.tensor(flags).float(), reduce_op="sum").tolist()]

    def _rehearse(self, run_log: RunLog) -> None:
        """Do in small what the end of the run does, to know how long that takes."""
        with self.deadline.measured("save"):
            self._save(run_log, export=True, final=True, minutes=min(REHEARSED_MINUTES, self.config.token_minutes))
        average = self.trainer.averaged_weights()
        if self.fabric.is_global_zero:
            if self._dev_set:
                codec, first = self._codec(average), self._dev_set[:1]
                dev.evaluate(codec, first, self._metrics)  # the first time takes longer
                with self.deadline.measured("scores", times=len(self._dev_set)):
                    dev.evaluate(codec, first, self._metrics)
            with self.deadline.measured("plot"):
                plot_losses(self.folder)
        self.fabric.barrier()

    def _save(self, run_log: RunLog, *, export: bool, final: bool, minutes: float | None = None) -> None:
        step, state = self.trainer.step, self.trainer.state()
        if self.fabric.is_global_zero:
            checkpoints.save(self.folder, step, state, self.config.keep_every)
            if export:
                codec = self._codec(state["average"])
                if final:
                    self._add_statistics(codec, run_log, self.config.token_minutes if minutes is None else minutes)
                codec.save_pretrained(self.folder / EXPORT)
        self.fabric.barrier()

    def _unfinished(self, run_log: RunLog, is_last: bool) -> tuple[bool, bool]:
        """Whether the checkpoint that was resumed lacks its export, and its scores."""
        step = self.trainer.step
        due = bool(self._dev_set) and step > 0 and (is_last or step % self.config.dev_every == 0)
        return is_last and not is_exported(self.folder), due and not run_log.has(step, "dev/keep_ratio")

    def _add_statistics(self, codec: DTMCodec, run_log: RunLog, minutes: float) -> None:
        """Token statistics of the training speech, for compact files, as far as there is time for them."""
        source = self.config.data.train
        if not minutes or source is None:
            return
        later = f"dtm-codec export {self.folder} -o {self.folder / EXPORT} --data"
        if is_shards(source):
            log.info("no token statistics from shards; to add them: %s MANIFEST", later)
            return
        within = self.deadline.left - self.deadline.needs() if self.deadline.is_set else math.inf
        if within <= 0:
            log.info("no time left for token statistics; to add them: %s %s", later, source)
            return
        utterances = find_utterances(source)
        speech_s = min(60 * minutes, sum(utterance.duration or 0 for utterance in utterances))
        log.info("token statistics of up to %.0f s of speech", speech_s)
        with run_log.activity("token statistics", speech_s) as show:
            codec.token_model = token_statistics(codec, utterances, minutes, within=within, on_progress=show)

    def _evaluate(self, run_log: RunLog) -> None:
        """Scores and samples of the averaged weights, by the first process."""
        average = self.trainer.averaged_weights()
        if self._dev_set and self.deadline.left < self.deadline.needs("scores"):
            log.info("step %d: no time left for dev scores", self.trainer.step)
        elif self._dev_set:
            codec, step = self._codec(average), self.trainer.step
            result = dev.evaluate(codec, self._dev_set, self._metrics)
            dev.write_samples(self.folder / "samples" / f"step-{step:08d}", result, codec.config.sample_rate)
            for index, (_, decoded) in enumerate(result.samples):
                run_log.audio(step, f"dev/{index}", decoded, codec.config.sample_rate)
            run_log.metrics(step, result.scores)  # last: a resumed run takes them as the sign that all is there
            log.info("step %d: %s", step, ", ".join(f"{name} {value:.3f}" for name, value in result.scores.items()))
        if self.fabric.is_global_zero:
            plot_losses(self.folder)
        self.fabric.barrier()

    def _codec(self, weights: dict[str, Tensor]) -> DTMCodec:
        jitter = self.config.controller.jitter
        return averaged_codec(self.config.model, weights, jitter).to(self.fabric.device)


class Speedometer:
    """Seconds of audio per second, over the last 20 steps."""

    def __init__(self, seconds_a_step: float) -> None:
        self._seconds = seconds_a_step
        self._times = deque([time.monotonic()], maxlen=21)

    def tick(self) -> float:
        self._times.append(time.monotonic())
        return self._seconds * (len(self._times) - 1) / max(1e-9, self._times[-1] - self._times[0])


def _status(metrics: dict[str, float]) -> str:
    names = {
        "audio_per_second": "x real time",
        "mel": "mel",
        "quantizer": "vq",
        "adversarial": "adv",
        "feature_matching": "fm",
        "keep_ratio": "keep",
        "tau": "tau",
        "code_usage": "codes",
    }
    return "  ".join(f"{short} {metrics[name]:.3g}" for name, short in names.items() if name in metrics)


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """A list that a SIGINT or SIGTERM is put into, instead of ending the process; a second one ends it at once."""
    received: list[int] = []

    def stop(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    previous = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    for kind in previous:
        signal.signal(kind, stop)
    try:
        yield received
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)
