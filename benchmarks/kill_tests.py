"""Kill what runs, again and again, and see what is left: `make kill-tests`.

    python benchmarks/kill_tests.py [encode] [training] [evaluate] [tokenize] [ray] [listening] [--kills 50]

Each loop starts a run, kills it with SIGKILL, looks at its folder, and starts it again, until there were enough kills
and the run is done. Half of the kills come at a random moment, half while a file is half written. What must hold:

* nothing that was acknowledged is lost: files, checkpoints, judged utterances, shards, ratings;
* what is there is whole: every file can be read, and is what an undisturbed run writes;
* nothing is left behind: no temporary, no lock, no process.

A run is a fork of this process, which has loaded the packages that take seconds to load.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kill_loop import Counts, descendants, forked, half_written, kill_again_and_again, load, nothing_is_left, waited

from dtm_codec.speech.audio import read_audio, sample_path, write_audio

SAMPLE_RATE = 16_000
LAYERS = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
CLOCKS = ("audio_per_second", "code_usage", "perplexity")
"""Metrics of training that depend on when a process started."""

TRAINING = """
model: {preset: s-vfr-50, dim: 32, heads: 2, mlp_hidden: 48, enc1_layers: 1, enc2_layers: 1, dec1_layers: 1,
  dec2_layers: 1, quantizer: {codebook_size: 64, dim: 4}}
precision: 32-true
accelerator: cpu
devices: 1
data: {crop_seconds: 0.5, batch_size: 2}
optimizer: {warmup_steps: 2, decay_steps: 100}
discriminator: {start: 3, every: 2, crop_seconds: 0.25, periods: [2], period_channels: [4], stft_sizes: [256],
  stft_channels: 4}
log_every: 1
checkpoint_every: 2
dev_every: 4
dev_utterances: 1
dev_metrics: [mel]
token_minutes: 0.1
loggers: []
"""


# Files


def encode(folder: Path, kills: int, files: int = 40) -> Counts:
    """Of a folder that is encoded, every file that is there is the one of an undisturbed run."""
    from dtm_codec.cli import main
    from dtm_codec.system import files as system

    load("onnxruntime", "soundfile", "soxr", "rich.console", "dtm_codec.codec", "dtm_codec.cli.codec")
    speech, rate = read_audio(sample_path())
    (folder / "in").mkdir()
    for number in range(files):
        write_audio(folder / "in" / f"{number:02d}.wav", speech[: rate // 2 + 1000 * number], rate)

    def start(out: Path) -> Callable[[], object]:
        def work() -> None:
            system.os = SlowDisk()  # files this small are else written faster than we can look
            try:
                main(["encode", str(folder / "in"), "-o", str(out)])
            except SystemExit as end:
                if end.code not in (0, 1):  # 1: some were there already
                    raise

        return work

    def written(out: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in out.glob("[!.]*")}

    def check(out: Path) -> None:
        assert written(out).items() <= whole.items()

    def finish(out: Path) -> None:
        assert written(out) == whole

    assert waited(forked(start(folder / "whole"), folder / "whole.log")) == 0, (folder / "whole.log").read_text()[
        -3000:
    ]
    whole = written(folder / "whole")
    assert len(whole) == files
    return kill_again_and_again(start, lambda out: len(written(out)), check, finish, folder, kills, pause_s=0.3)


class SlowDisk:
    """The module `os`, with 20 ms for each file until it is on disk."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        time.sleep(0.02)
        os.fsync(descriptor)


# Training


def training(folder: Path, kills: int, steps: int = 40) -> Counts:
    """Checkpoints load, and the curve and weights of the end are those of an undisturbed run."""
    import torch

    from dtm_codec.codec import DTMCodec
    from dtm_codec.training import checkpoints
    from dtm_codec.training.config import load_config
    from dtm_codec.training.run import train

    load("lightning_fabric", "matplotlib.pyplot", "dtm_codec.nn.pitch")
    audio, rate = read_audio(sample_path())
    DTMCodec.from_pretrained("random:s-vfr-50").encode(audio[:rate], rate)  # compiles the selector
    (folder / "run.yaml").write_text(TRAINING)
    samples = sample_path().parent
    config = load_config(
        folder / "run.yaml", [f"data.train={samples}", f"data.dev={samples}", f"max_steps={steps}", "data.workers=0"]
    )

    def start(out: Path) -> Callable[[], object]:
        return lambda: train(config, out, resume=True)

    def done(out: Path) -> int:
        last = checkpoints.latest(out)
        return checkpoints.step_of(last) // config.checkpoint_every if last else 0

    def check(out: Path) -> None:
        for path in checkpoints.list_checkpoints(out):
            assert checkpoints.load(path)["step"] == checkpoints.step_of(path)
        if (out / "export" / "config.json").exists():
            DTMCodec.from_pretrained(out / "export")

    def curve(out: Path) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [{name: value for name, value in line.items() if name not in CLOCKS} for line in lines]

    whole = folder / "whole"
    assert waited(forked(start(whole), folder / "whole.log")) == 0, (folder / "whole.log").read_text()[-3000:]

    def finish(out: Path) -> None:
        assert curve(out) == curve(whole)
        ours, theirs = (checkpoints.load(run)["codec"] for run in (out, whole))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        names = [sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()) for run in (out, whole)]
        assert names[0] == names[1], f"files that differ: {sorted(set(names[0]) ^ set(names[1]))}"
        assert DTMCodec.from_pretrained(out / "export").token_model is not None

    torch.set_num_threads(1)
    return kill_again_and_again(start, done, check, finish, folder, kills, pause_s=0.5)


# Evaluation


def evaluate(folder: Path, kills: int, systems: int = 40) -> Counts:
    """A judged utterance that was reported is in the journal, and the summary is that of an undisturbed run."""
    from dtm_codec.evaluation.data import read_data
    from dtm_codec.evaluation.runner import evaluate as run

    load("pyarrow.parquet", "torch", "dtm_codec.evaluation.systems.plain")
    data, names = folder / "data", [f"lowpass:{1000 + 50 * number}" for number in range(systems)]
    data.mkdir()
    audio, _ = read_audio(sample_path(), SAMPLE_RATE)
    for number in range(3):
        write_audio(data / f"{number}.wav", audio[number * SAMPLE_RATE :][:SAMPLE_RATE], SAMPLE_RATE)
    reported = folder / "reported"

    def start(out: Path) -> Callable[[], object]:
        def work() -> None:
            with reported.open("a") as lines:
                run(
                    names,
                    ["si-sdr", "mel"],
                    read_data(data),
                    out,
                    progress=lambda done, _: print(done, file=lines, flush=True),
                )

        return work

    def done(out: Path) -> int:
        return max(map(int, reported.read_text().split()), default=0) if reported.exists() else 0

    def check(out: Path) -> None:
        if not (out / "journal.sqlite").exists():
            return
        with closing(sqlite3.connect(out / "journal.sqlite")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            if told := done(out):
                (count,) = database.execute("SELECT count(*) FROM utterances").fetchone()
                assert told <= count, f"{told} were reported, {count} are there"
                assert database.execute("SELECT count(*) FROM scores").fetchone() == (2 * count,)

    whole = forked(start(folder / "whole"), folder / "whole.log")
    assert waited(whole) == 0, (folder / "whole.log").read_text()[-3000:]
    reported.unlink()

    def finish(out: Path) -> None:
        reported.unlink(missing_ok=True)
        ours, theirs = (json.loads((run / "summary.json").read_text()) for run in (out, folder / "whole"))
        assert ours == theirs

    return kill_again_and_again(start, done, check, finish, folder, kills, pause_s=0.05)


# Corpus


def corpus(folder: Path, clips: int = 40) -> tuple[Path, Path, dict[str, bytes]]:
    """Clips, a tiny model, and what an undisturbed run in one process makes of them."""
    import torch

    from dtm_codec import DTMCodec, QuantizerConfig, preset
    from dtm_codec.corpus import run

    (folder / "clips").mkdir()
    audio, _ = read_audio(sample_path(), SAMPLE_RATE)
    for number in range(clips):
        cut = audio[1000 * number :][: SAMPLE_RATE // 2 + 100 * number]
        write_audio(folder / "clips" / f"{number:03d}.wav", cut, SAMPLE_RATE)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **LAYERS)
    DTMCodec(replace(config, quantizer=QuantizerConfig(codebook_size=256))).save_pretrained(folder / "model")
    in_processes = run.run_in_processes
    run.run_in_processes = one_after_the_other
    try:
        run.tokenize(folder / "clips", folder / "whole", model=folder / "model", token_rate=50, shard_size=2)
    finally:
        run.run_in_processes = in_processes
    return folder / "clips", folder / "model", contents(folder / "whole")


def one_after_the_other(start: Callable[[], Any], tasks: Iterable[Any], *_: int) -> Generator[Any, None, None]:
    yield from map(start(), tasks)


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*out.glob("data/[!.]*"), *out.glob("[!.]*.json")]}


def tokenize(folder: Path, kills: int) -> Counts:
    """Shards that are there have the bytes of an undisturbed run's, and workers end with the run."""
    from dtm_codec.corpus import tokenize as run

    clips, model, whole = corpus(folder)

    def start(out: Path) -> Callable[[], object]:
        return lambda: run(clips, out, model=model, token_rate=50, shard_size=2, workers=2)

    def done(out: Path) -> int:
        return len(list(out.glob("data/[!.]*")))

    def check(out: Path) -> None:
        assert contents(out).items() <= whole.items()

    def finish(out: Path) -> None:
        assert contents(out) == whole

    return kill_again_and_again(start, done, check, finish, folder, kills, pause_s=1.0)


def on_ray(folder: Path, kills: int) -> Counts:
    """Workers on Ray are killed at random moments; the run goes on and its files are those of an undisturbed one."""
    import ray

    from dtm_codec.corpus import tokenize as run

    clips, model, whole = corpus(folder)
    counts, draw, over = Counts(), random.Random(0), threading.Event()
    os.environ |= {"HOME": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.pop("RAY_ADDRESS", None)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")

    def kill_workers() -> None:
        last = (0, -1)
        while not over.wait(draw.uniform(0, 1)):
            workers = [pid for pid in descendants(os.getpid()) if "MapWorker" in command_of(pid)]
            out = folder / f"round-{counts.rounds}"
            writing, done = half_written(out), (counts.rounds, len(list(out.rglob("*.parquet"))))
            # Not again before something was done: on a slow machine, workers would be killed for ever.
            if workers and counts.kills < kills and done > last and (writing or draw.random() < 0.3):
                last = done
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    counts.kills += 1
                    counts.while_writing += bool(writing)

    killer = threading.Thread(target=kill_workers)
    killer.start()
    try:
        while counts.kills < kills:
            counts.rounds += 1
            out = folder / f"round-{counts.rounds}"
            run(clips, out, model=model, token_rate=50, shard_size=2, ray="auto", workers=2)
            assert contents(out) == whole
            nothing_is_left(out)
            counts.acknowledged += len(whole)
    finally:
        over.set()
        killer.join()
        ray.shutdown()
    return counts


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    return ""


# The listening test is in a file of its own.


def listening(folder: Path, kills: int) -> Counts:
    from kill_listening import kill_server

    counts = Counts(rounds=1)
    counts.kills, counts.acknowledged = kill_server(folder, kills)
    return counts


LOOPS = {
    "encode": encode,
    "training": training,
    "evaluate": evaluate,
    "tokenize": tokenize,
    "ray": on_ray,
    "listening": listening,
}


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kill-tests-") as folder:
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loops", nargs="*", choices=[*LOOPS, []], help="which; all by default")
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    print("| loop | kills | while writing | rounds | pieces of work kept | seconds |")
    print("|---|--:|--:|--:|--:|--:|", flush=True)
    for name in options.loops or LOOPS:
        started = time.monotonic()
        with workplace() as folder:
            counts = LOOPS[name](folder, options.kills)
        seconds = time.monotonic() - started
        cells = (name, counts.kills, counts.while_writing, counts.rounds, counts.acknowledged, f"{seconds:.0f}")
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
