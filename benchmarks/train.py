"""Training throughput in seconds of audio per second, and where the time goes.

    python benchmarks/train.py [--config configs/small/vfr-50.yaml] [--threads 2] [--limit 120] [key=value ...]

Each measurement runs in a process of its own: on a CPU that lacks the instructions for bf16 products, they can end a
process, or take minutes a step. Those get `--limit` seconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
MODES = {
    "generator only": ["discriminator.start=1000000000"],
    "discriminators as configured": ["discriminator.start=0"],
    "discriminators every step": ["discriminator.start=0", "discriminator.every=1"],
}
PRECISIONS = ("32-true", "bf16-mixed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "configs" / "small" / "vfr-50.yaml"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=8, help="timed steps; the median counts")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each measurement in bf16")
    parser.add_argument("--rows", type=int, default=15, help="ops in the breakdown")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    console = Console()
    for precision in PRECISIONS:
        limit = threading.TIMEOUT_MAX if precision == "32-true" else arguments.limit
        speeds = Table("", *MODES, title=f"seconds of audio per second, {precision}, {arguments.threads} threads")
        ops = None
        for row, compiled in {"eager": "false", "compiled": "true"}.items():
            results: list[dict[str, Any] | str] = []
            for overrides in MODES.values():
                options = [f"precision={precision}", f"compile={compiled}", *overrides, *arguments.overrides]
                failed = bool(results) and isinstance(results[-1], str)  # the other modes take longer still
                results.append(results[-1] if failed else isolated(arguments, options, limit))
            speeds.add_row(row, *(r if isinstance(r, str) else f"{r['speed']:.1f}" for r in results))
            if row == "eager" and not isinstance(results[-1], str):
                ops = results[-1].get("ops")
        if ops is not None:
            console.print(op_table(precision, ops))
        console.print(speeds)


def isolated(arguments: argparse.Namespace, overrides: list[str], limit: float) -> dict[str, Any] | str:
    """Measure in a new process for at most `limit` seconds; the last result, or why there is none."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(arguments, overrides, sender))
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


def measure(arguments: argparse.Namespace, overrides: list[str], pipe: Any) -> None:
    import torch
    from lightning_fabric import Fabric
    from torch.profiler import ProfilerActivity, profile

    from dtm_codec.speech.audio import sample_path
    from dtm_codec.training.config import load_config
    from dtm_codec.training.data import Crops, open_recordings
    from dtm_codec.training.trainer import Trainer

    torch.set_num_threads(arguments.threads)
    config = load_config(arguments.config, overrides)
    fabric = Fabric(accelerator=config.accelerator, devices=1, precision=config.precision)
    trainer = Trainer(config, fabric)
    recordings = open_recordings(str(sample_path().parent), config.data, config.model.sample_rate)
    crops = Crops(recordings, config.data, config.crop_samples, config.seed)

    def steps(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            trainer.train_step(crops[trainer.step])
        return (time.perf_counter() - start) / count

    every = config.discriminator.every
    steps(2 * every)
    audio = config.data.batch_size * config.crop_samples / config.model.sample_rate
    seconds: list[float] = []
    while len(seconds) * every < arguments.steps:
        seconds.append(steps(every))
        result = {"speed": audio / statistics.median(seconds)}
        pipe.send(result)
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
