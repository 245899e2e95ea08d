"""A run small enough for tests: all parts of training, seconds long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from dtm_codec.training.config import TrainConfig, load_config

SAMPLES = Path(__file__).parents[2] / "src" / "dtm_codec" / "samples"

TINY = """
model:
  {preset: s-vfr-50, dim: 32, heads: 2, mlp_hidden: 48, enc1_layers: 1, enc2_layers: 1, dec1_layers: 1, dec2_layers: 1,
   quantizer: {codebook_size: 64, dim: 4}}
max_steps: 12
precision: 32-true
accelerator: cpu
devices: 1
data: {crop_seconds: 0.5, batch_size: 4}
optimizer: {lr: 1e-3, min_lr: 1e-4, warmup_steps: 2, decay_steps: 100}
discriminator:
  {start: 3, every: 2, crop_seconds: 0.25,
   periods: [2, 3], period_channels: [4, 8], stft_sizes: [256], stft_channels: 4}
revive_after: 3
log_every: 1
checkpoint_every: 4
loggers: []
"""

CLOCKS = ("audio_per_second", "code_usage", "perplexity")
"""Metrics that depend on when a process started."""


def tiny_file(folder: Path) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(TINY)
    return path


def tiny(folder: Path, *overrides: str) -> TrainConfig:
    return load_config(tiny_file(folder), [f"data.train={SAMPLES}", *overrides])


def command(folder: Path, out: Path, *arguments: str) -> list[str]:
    run = [
        sys.executable,
        "-m",
        "dtm_codec",
        "train",
        str(tiny_file(folder)),
        "--data",
        str(SAMPLES),
        "--output",
        str(out),
    ]
    return [*run, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def run(folder: Path, out: Path, *arguments: str) -> None:
    done = subprocess.run(
        command(folder, out, *arguments), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def curve(out: Path) -> list[dict[str, Any]]:
    """The metrics of a run without those that depend on the clock."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in CLOCKS} for line in lines]
