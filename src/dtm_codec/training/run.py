"""A run from its first step to its last: data, logs, checkpoints, dev scores, and a clean end."""

from __future__ import annotations

import json
import logging
import math
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..codec import DTMCodec
from ..errors import DataError
from ..files import write_atomically
from ..hub import CONFIG_FILE
from ..metrics import build_all
from ..optional import import_optional
from ..speech.audio import Samples
from . import checkpoints, dev, precision
from .config import TrainConfig
from .data import Batch, batches, find_utterances, is_shards
from .fsdp import sharding_strategy
from .logs import RunLog, log_to_console, plot_losses
from .publishing import averaged_codec, token_statistics
from .trainer import Trainer, TrainingError

log = logging.getLogger(__name__)

RUN_FILE = "run.json"
"""The run's configuration; a model's own is `config.json`, and a published model can be trained on where it lies."""


def train(config: TrainConfig, out: str | Path, *, resume: bool = False, max_minutes: float = math.inf) -> Path:
    """Train to `config.max_steps` or for `max_minutes`, whichever is first; returns the last checkpoint.

    SIGINT and SIGTERM end the run after the current step, with a checkpoint; a second one ends it at once.
    """
    lightning = import_optional("lightning_fabric", "train")
    if config.data.train is None:
        raise DataError("no training data; give --data or data.train")
    folder = Path(out)
    last = checkpoints.latest(folder)
    if last is not None and not resume:
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
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(config, fabric, resumed=last is not None)
    if last is not None:
        trainer.load_state(checkpoints.load(last))
        log.info("resumed from %s", last)
    return Run(trainer, folder).until(config.max_steps, max_minutes)


class Run:
    """A trainer in time: data, logs, checkpoints, dev scores, and a clean end."""

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self.trainer = trainer
        self.folder = folder
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

    def until(self, max_steps: int, max_minutes: float) -> Path:
        """Train. However it ends, but for a kill, there is a checkpoint of the last step; it is written first."""
        config, trainer = self.config, self.trainer
        deadline = time.monotonic() + 60 * max_minutes
        saved = time.monotonic()
        speed = Speedometer(config.data.batch_size * config.crop_samples / config.model.sample_rate)
        stream = self._batches()
        run_log = RunLog(self.folder, config, trainer.step, enabled=self.fabric.is_global_zero)
        with _stop_signals() as stopped, run_log:
            if trainer.step >= max_steps and self._agreed(not self._is_exported())[0]:
                self._save(export=True, final=True)  # the run was killed after its last checkpoint
                self._evaluate(run_log)
            while trainer.step < max_steps:
                try:
                    metrics = trainer.train_step(next(stream))
                except TrainingError as error:
                    last = checkpoints.latest(self.folder)
                    raise TrainingError(f"{error}; last good checkpoint: {last or 'none yet'}") from None
                step = trainer.step
                metrics |= {"audio_per_second": speed.tick()}
                if step % config.log_every == 0:
                    run_log.metrics(step, metrics)
                    run_log.progress(step, _status(metrics))
                waited, over, interrupted = self._agreed(
                    time.monotonic() - saved >= 60 * config.checkpoint_minutes,
                    time.monotonic() >= deadline,
                    bool(stopped),
                )
                over = over or interrupted or step == max_steps
                kept = step % config.keep_every == 0
                if over or waited or step % config.checkpoint_every == 0 or kept:
                    self._save(export=over or kept, final=step == max_steps or (over and not interrupted))
                    saved = time.monotonic()
                if step % config.dev_every == 0 or (over and not interrupted):
                    self._evaluate(run_log)
                if over:
                    break
        last = checkpoints.latest(self.folder)
        assert last is not None
        return last

    def _batches(self) -> Iterator[Batch]:
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

    def _save(self, *, export: bool, final: bool) -> None:
        step, state = self.trainer.step, self.trainer.state()
        if self.fabric.is_global_zero:
            checkpoints.save(self.folder, step, state, self.config.keep_every)
            if export:
                self._export(state["average"], final)
        self.fabric.barrier()

    def _is_exported(self) -> bool:
        """Whether the export is of the last checkpoint."""
        last, written_last = checkpoints.latest(self.folder), self.folder / "export" / CONFIG_FILE
        return last is not None and written_last.exists() and written_last.stat().st_mtime >= last.stat().st_mtime

    def _export(self, average: dict[str, Tensor], final: bool) -> None:
        """The averaged weights as a model folder; at the end with token statistics of the training speech."""
        codec, source = self._codec(average), self.config.data.train
        if final and self.config.token_minutes and source is not None:
            if is_shards(source):
                log.info("no token statistics from shards; dtm-codec export --data MANIFEST adds them")
            else:
                codec.token_model = token_statistics(codec, find_utterances(source), self.config.token_minutes)
        codec.save_pretrained(self.folder / "export")

    def _evaluate(self, run_log: RunLog) -> None:
        """Scores and samples of the averaged weights, by the first process."""
        average = self.trainer.averaged_weights()
        if self._dev_set:
            codec, step = self._codec(average), self.trainer.step
            result = dev.evaluate(codec, self._dev_set, self._metrics)
            run_log.metrics(step, result.scores)
            log.info("step %d: %s", step, ", ".join(f"{name} {value:.3f}" for name, value in result.scores.items()))
            dev.write_samples(self.folder / "samples" / f"step-{step:08d}", result, codec.config.sample_rate)
            for index, (_, decoded) in enumerate(result.samples):
                run_log.audio(step, f"dev/{index}", decoded, codec.config.sample_rate)
        if self.fabric.is_global_zero:
            plot_losses(self.folder)
        self.fabric.barrier()

    def _codec(self, weights: dict[str, Tensor]) -> DTMCodec:
        return averaged_codec(self.config.model, weights).to(self.fabric.device)


class Speedometer:
    """Seconds of audio per second, over the last steps."""

    def __init__(self, seconds_a_step: float, steps: int = 20) -> None:
        self._seconds = seconds_a_step
        self._times = deque([time.monotonic()], maxlen=steps + 1)

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
            for reader in multiprocessing.active_children():
                reader.kill()
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
