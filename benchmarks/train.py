"""Training throughput in seconds of audio per second, and where the time goes.

    python benchmarks/train.py [--config configs/small/vfr-50.yaml] [--threads 2] [--steps 8] [key=value ...]

Each precision runs in a process of its own: bf16 products can end a process on a CPU that lacks their instructions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "configs" / "small" / "vfr-50.yaml"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=8, help="timed steps; the median counts")
    parser.add_argument("--rows", type=int, default=15, help="ops in the breakdown")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    console = Console()
    speeds = Table("precision", *MODES, title=f"seconds of audio per second, {arguments.threads} threads")
    for precision in ("32-true", "bf16-mixed"):
        cells, breakdown = [], None
        for mode, overrides in MODES.items():
            result = isolated(arguments, [f"precision={precision}", *overrides, *arguments.overrides])
            cells.append("does not run on this machine" if result is None else f"{result['speed']:.1f}")
            breakdown = result if mode == "discriminators every step" else breakdown
        speeds.add_row(precision, *cells)
        if breakdown is not None:
            console.print(op_table(precision, breakdown["ops"]))
    console.print(speeds)


def isolated(arguments: argparse.Namespace, overrides: list[str]) -> dict[str, Any] | None:
    """Measure in a new process; None if it died."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(arguments, overrides, sender))
    process.start()
    sender.close()
    try:
        result: dict[str, Any] | None = receiver.recv()
    except EOFError:
        result = None
    process.join()
    return result


def measure(arguments: argparse.Namespace, overrides: list[str], pipe: Any) -> None:
    import torch
    from lightning_fabric import Fabric
    from torch.profiler import ProfilerActivity, profile

    from dtm_codec.audio import sample_path
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
    seconds = sorted(steps(every) for _ in range(-(-arguments.steps // every)))
    median = seconds[len(seconds) // 2]
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        steps(1)
    rows = sorted(profiler.key_averages(), key=lambda row: -row.self_cpu_time_total)
    total = sum(row.self_cpu_time_total for row in rows)
    ops = [(row.key, row.self_cpu_time_total / total, row.count) for row in rows[: arguments.rows]]
    audio = config.data.batch_size * config.crop_samples / config.model.sample_rate
    pipe.send({"speed": audio / median, "ops": ops})


def op_table(precision: str, ops: list[tuple[str, float, int]]) -> Table:
    table = Table("op", "share of time", "calls", title=f"one step with discriminators, {precision}")
    for name, share, calls in ops:
        table.add_row(name, f"{100 * share:.1f} %", str(calls))
    return table


if __name__ == "__main__":
    main()
