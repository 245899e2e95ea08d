"""Peak memory and time of `dtm-codec encode` and `decode` on long audio, each in a process of its own.

    python benchmarks/long_audio.py --minutes 20 --runs 10
    python benchmarks/long_audio.py --minutes 60 180 --threads 2
    python benchmarks/long_audio.py --minutes 5 --threads 2 --beside 1     # with one core kept busy by another process

Without --audio, the bundled recording is repeated. Exit code 1 if a process took more than --limit MB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from dtm_codec.speech.audio import read_audio, sample_path

RATE = 16_000


def make_audio(path: Path, source: Path, minutes: float) -> None:
    speech, _ = read_audio(source, RATE)
    left = round(60 * minutes * RATE)
    with soundfile.SoundFile(path, "w", RATE, 1, subtype="PCM_16") as file:
        while left > 0:
            file.write(speech[:left])
            left -= speech.size


def measure(arguments: list[str], threads: int | None) -> tuple[float, float, float]:
    """Peak MB, seconds by the clock and seconds of processor time of one command."""
    environment = dict(os.environ) | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    if threads is None:
        environment.pop("OMP_NUM_THREADS", None)
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "dtm_codec", *arguments], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"dtm-codec {' '.join(arguments)} failed")
    return usage.ru_maxrss / 1024, time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, nargs="+", default=[20])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--threads", type=int, help="default: as the command chooses")
    parser.add_argument("--model", help="default: the bundled one, which the commands find by themselves")
    parser.add_argument("--audio", type=Path, default=sample_path(), help="speech to repeat")
    parser.add_argument("--beside", type=int, default=0, help="busy processes to run beside")
    parser.add_argument("--limit", type=float, default=1200, help="MB")
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.beside)]
    worst = 0.0
    try:
        with tempfile.TemporaryDirectory() as folder:
            audio, coded, decoded = (Path(folder) / name for name in ("x.flac", "x.dtm", "x.wav"))
            for minutes in options.minutes:
                make_audio(audio, options.audio, minutes)
                for command in (["encode", audio, "-o", coded], ["decode", coded, "-o", decoded]):
                    extra = [] if options.model is None else ["-m", options.model]
                    results = [
                        measure([*map(str, command), *extra, "--force"], options.threads) for _ in range(options.runs)
                    ]
                    peaks, clock, processor = (np.array(column) for column in zip(*results, strict=True))
                    worst = max(worst, peaks.max())
                    print(
                        f"{command[0]} {minutes:g} min: peak {peaks.min():.0f} ... {peaks.max():.0f} MB in "
                        f"{options.runs} runs, {np.median(clock):.1f} s, {np.median(processor):.1f} s of processor",
                        flush=True,
                    )
    finally:
        for process in busy:
            process.kill()
    sys.exit(int(worst > options.limit))  # a NumPy bool would be printed as a message


if __name__ == "__main__":
    main()
