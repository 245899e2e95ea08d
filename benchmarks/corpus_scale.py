"""How tokenizing a corpus scales: time, memory and open files.

    python benchmarks/corpus_scale.py clips [--count 100000]
    python benchmarks/corpus_scale.py manifest FILE.jsonl [--model random:s-vfr-50] [--ray local]

`clips` generates that many one-second files and tokenizes them with a tiny random model: what grows, grows with the
number of files. `manifest` tokenizes the first quarter, half and whole of a manifest, in processes and, with --ray, on
Ray, and compares the rows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from dtm_codec.corpus import tokenize
from dtm_codec.corpus.run import Progress
from dtm_codec.speech.audio import audio_bytes

SAMPLE_RATE = 16_000
CLIPS_IN_A_FOLDER = 1000


def descendants(pid: int) -> Iterator[int]:
    """Processes that `pid` has started, and theirs."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from descendants(int(child))


class Watch:
    """Memory and open files of this process and the workers, taken whenever a shard is done."""

    def __init__(self, report_every: float) -> None:
        self.report_every, self.next_report = report_every, 0.0
        self.largest_worker_mb = 0.0
        self.started = time.perf_counter()
        self.table = Table("done", "seconds", "utterances", "parent MB", "largest worker MB", "most open files")

    def __call__(self, progress: Progress) -> None:
        parent = os.getpid()
        workers = list(descendants(parent))
        worker_mb = max((self.resident_mb(pid) for pid in workers), default=0.0)
        self.largest_worker_mb = max(self.largest_worker_mb, worker_mb)
        share = progress.shards_done / progress.shards
        if share < self.next_report:
            return
        self.next_report = share + self.report_every
        self.table.add_row(
            f"{share:.0%}",
            f"{time.perf_counter() - self.started:.0f}",
            str(progress.report.utterances),
            f"{self.resident_mb(parent):.0f}",
            f"{worker_mb:.0f}",
            str(max(self.open_files(pid) for pid in [parent, *workers])),
        )

    @staticmethod
    def resident_mb(pid: int) -> float:
        """0 for a process that has ended meanwhile."""
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @staticmethod
    def open_files(pid: int) -> int:
        try:
            return len(list(Path(f"/proc/{pid}/fd").iterdir()))
        except OSError:
            return 0


def tiny_model(folder: Path) -> Path:
    import torch

    from dtm_codec import DTMCodec, QuantizerConfig, preset

    torch.manual_seed(0)
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    config = replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **sizes)
    codec = DTMCodec(replace(config, quantizer=QuantizerConfig(codebook_size=256)))
    noise = torch.randn(1, SAMPLE_RATE) / 10
    codec.network.tau.fill_(codec.network.calibrated_tau(noise))
    codec.save_pretrained(folder)
    return folder


def generate(folder: Path, count: int) -> None:
    """One-second clips of noise; a thousand different ones, again and again."""
    noise = np.random.default_rng(0).standard_normal((CLIPS_IN_A_FOLDER, SAMPLE_RATE), np.float32) / 10
    contents = [audio_bytes(clip, SAMPLE_RATE) for clip in noise[:count]]
    for index in range(count):
        parent = folder / f"{index // CLIPS_IN_A_FOLDER:04d}"
        parent.mkdir(parents=True, exist_ok=True)
        (parent / f"{index:07d}.wav").write_bytes(contents[index % CLIPS_IN_A_FOLDER])


def clips(count: int, workers: int | None, console: Console) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder / "clips", count)
        watch = Watch(report_every=0.1)
        summary = tokenize(
            folder / "clips", folder / "out", model=tiny_model(folder / "model"), workers=workers, on_progress=watch
        )
        console.print(watch.table)
        counts = summary.metadata["counts"]
        console.print(
            f"{counts['utterances']} utterances, {counts['failures']} failures, {counts['shards']} shards; "
            f"{summary.progress.hours_per_hour:.1f} hours per hour, "
            f"{summary.progress.hours_per_core_hour:.1f} per core"
        )
        assert counts["utterances"] == count


def manifest(path: Path, model: str, workers: int | None, ray: str | None, console: Console) -> None:
    import pyarrow.dataset as ds

    lines = path.read_text().splitlines(keepends=True)
    table = Table("engine", "utterances", "hours", "seconds", "hours / hour", "per core", "largest worker MB")
    with tempfile.TemporaryDirectory() as name:
        folder, rows = Path(name), {}
        part = folder / "corpus" / path.name
        part.parent.mkdir()
        for entry in path.parent.iterdir():  # a manifest's paths count from its own folder
            if entry != path:
                (part.parent / entry.name).symlink_to(entry.resolve())
        for engine in ("processes", *(("ray",) if ray else ())):
            for share in (4, 2, 1):
                part.write_text("".join(lines[: len(lines) // share]))
                watch, out = Watch(report_every=1.0), folder / f"{engine}-{share}"
                address = ray if engine == "ray" else None
                summary = tokenize(part, out, model=model, workers=workers, ray=address, on_progress=watch)
                progress = summary.progress
                table.add_row(
                    engine,
                    str(progress.report.utterances),
                    f"{progress.speech_hours:.3f}",
                    f"{progress.wall_hours * 3600:.1f}",
                    f"{progress.hours_per_hour:.1f}",
                    f"{progress.hours_per_core_hour:.1f}",
                    f"{watch.largest_worker_mb:.0f}",
                )
                rows[engine] = ds.dataset(out / "data").to_table().sort_by("id")
        console.print(table)
        if ray:
            console.print(f"same rows in processes and on Ray: {rows['processes'].equals(rows['ray'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, help="default: one a core")
    commands = parser.add_subparsers(dest="command", required=True)
    of_clips = commands.add_parser("clips")
    of_clips.add_argument("--count", type=int, default=100_000)
    of_manifest = commands.add_parser("manifest")
    of_manifest.add_argument("path", type=Path)
    of_manifest.add_argument("--model", default="random:s-vfr-50")
    of_manifest.add_argument("--ray", help="also on Ray, at this address")
    options = parser.parse_args()
    console = Console(width=120)
    if options.command == "clips":
        clips(options.count, options.workers, console)
    else:
        manifest(options.path, options.model, options.workers, options.ray, console)


if __name__ == "__main__":
    main()
