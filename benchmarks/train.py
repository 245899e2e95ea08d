"""Training throughput in seconds of audio per second on this processor, and where the time goes.

    python benchmarks/train.py [--config configs/small/product.yaml] [--cores 2] [--limit 120] [key=value ...]

Cores are used by the threads of one process, or by a process each.

Each measurement runs in a process of its own: on a CPU that lacks the instructions for bf16 products, they can end a
process, or take minutes a step. Those get `--limit` seconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import re
import signal
import statistics
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from dtm_codec.speech.audio import sample_path
from dtm_codec.system.threads import available_cores
from dtm_codec.training.config import FabricPrecision, TrainConfig, load_config
from dtm_codec.training.data import batches
from dtm_codec.training.precision import measured_gain, resolve
from dtm_codec.training.trainer import Trainer

ROOT = Path(__file__).parents[1]
MODES = {
    "generator only": ["discriminator.start=1000000000"],
    "discriminators as configured": ["discriminator.start=0"],
    "discriminators every step": ["discriminator.start=0", "discriminator.every=1"],
}
PRECISIONS: tuple[FabricPrecision, ...] = ("32-true", "bf16-mixed")


@dataclass(frozen=True)
class Way:
    """How the cores are used."""

    compiled: bool
    threads: int = 1
    processes: int = 1

    def __str__(self) -> str:
        cores = f"{self.processes} processes" if self.processes > 1 else f"{self.threads} threads"
        return f"{'compiled' if self.compiled else 'eager'}, {cores}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "configs" / "small" / "product.yaml"))
    parser.add_argument("--cores", type=int, default=available_cores())
    parser.add_argument("--steps", type=int, default=8, help="timed steps; the median counts")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each measurement in bf16")
    parser.add_argument("--rows", type=int, default=15, help="ops in the breakdown")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    ways = [Way(compiled, threads=arguments.cores) for compiled in (False, True)]
    if arguments.cores > 1:
        ways.append(Way(compiled=True, processes=arguments.cores))
    console = Console()
    console.print(f"{processor()}; {arguments.cores} cores; 16-bit products {measured_gain():.1f} times as fast")
    best = (0.0, "")
    for precision in PRECISIONS:
        limit = threading.TIMEOUT_MAX if precision == "32-true" else arguments.limit
        speeds = Table("", *MODES, title=f"seconds of audio per second, {precision}")
        for way in ways:
            results: list[dict[str, Any] | str] = []
            for overrides in MODES.values():
                options = [f"precision={precision}", f"compile={way.compiled}", *overrides, *arguments.overrides]
                failed = bool(results) and isinstance(results[-1], str)  # the other modes take longer still
                results.append(results[-1] if failed else isolated(arguments, way, options, limit))
            speeds.add_row(str(way), *(r if isinstance(r, str) else f"{r['speed']:.1f}" for r in results))
            first, last = results[0], results[-1]
            if not isinstance(first, str):
                best = max(best, (first["speed"], f"{precision}, {way}"))
            if way is ways[0] and not isinstance(last, str):
                console.print(op_table(precision, last["ops"]))
        console.print(speeds)
    console.print(f"fastest without discriminators: {best[1]}; precision=auto takes {resolve('auto', 'cpu')}")


def processor() -> str:
    """Its name, and the widest instructions that torch uses on it."""
    with suppress(OSError):
        names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if names:
            return f"{names[0]}, {torch.backends.cpu.get_cpu_capability()}"
    return f"{platform.processor() or platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"


def isolated(arguments: argparse.Namespace, way: Way, overrides: list[str], limit: float) -> dict[str, Any] | str:
    """Measure in a new process for at most `limit` seconds; the last result, or why there is none."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(arguments, way, overrides, sender))
    process.start()
    sender.close()
    timer = threading.Timer(limit, process.kill)
    timer.start()
    result: dict[str, Any] | None = None
    with suppress(EOFError):
        while True:
            result = receiver.recv()
    timer.cancel()
    process.join()
    if result is None:
        return f"not in {limit:g} s" if process.exitcode == -signal.SIGKILL else "does not run on this machine"
    return result


def measure(arguments: argparse.Namespace, way: Way, overrides: list[str], pipe: Any) -> None:
    torch.set_num_threads(way.threads)
    config = load_config(arguments.config, overrides)
    fabric = Fabric(
        accelerator=config.accelerator,
        devices=way.processes,
        strategy="ddp_fork" if way.processes > 1 else "auto",
        precision=config.precision,
    )
    fabric.launch(measure_steps, config, arguments, pipe)


def measure_steps(fabric: Any, config: TrainConfig, arguments: argparse.Namespace, pipe: Any) -> None:
    trainer = Trainer(config, fabric)
    stream = batches(
        str(sample_path().parent),
        config.data,
        sample_rate=config.model.sample_rate,
        crop_samples=config.crop_samples,
        seed=config.seed,
        step=0,
        rank=fabric.global_rank,
        world=fabric.world_size,
    )

    def steps(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            trainer.train_step(next(stream))
        return (time.perf_counter() - start) / count

    every = config.discriminator.every
    steps(2 * every)
    audio = config.data.batch_size * config.crop_samples / config.model.sample_rate
    seconds: list[float] = []
    while len(seconds) * every < arguments.steps:
        seconds.append(steps(every))
        result = {"speed": audio / statistics.median(seconds)}
        if fabric.is_global_zero:
            pipe.send(result)
    if fabric.world_size > 1:
        return
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        steps(1)
    rows = sorted(profiler.key_averages(), key=lambda row: -row.self_cpu_time_total)
    total = sum(row.self_cpu_time_total for row in rows)
    ops = [(row.key, row.self_cpu_time_total / total, row.count) for row in rows[: arguments.rows]]
    pipe.send(result | {"ops": ops})


def op_table(precision: str, ops: list[tuple[str, float, int]]) -> Table:
    table = Table("op", "share of time", "calls", title=f"one step with discriminators, {precision}")
    for name, share, calls in ops:
        table.add_row(name, f"{100 * share:.1f} %", str(calls))
    return table


if __name__ == "__main__":
    main()
