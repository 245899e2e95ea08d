"""Real-time factor, share of matrix products, and peak memory of encode and decode.

    python benchmarks/codec.py [--model random:vfr-50] [--threads 1] [--seconds 10 60 600]

Each length runs in a process of its own, so that its peak memory is its own. Random weights cost what trained ones do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

MATRIX_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkl", "aten::_scaled_dot_product")


def best_of(runs: int, work: Callable[[], Any]) -> tuple[float, Any]:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times), result


def matrix_share(work: Callable[[], Any]) -> float:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work()
    rows = profiler.key_averages()
    products = sum(r.self_cpu_time_total for r in rows if r.key.startswith(MATRIX_PRODUCTS))
    return products / sum(r.self_cpu_time_total for r in rows)


def measure(model: str, threads: int, seconds: int, pipe: Any) -> None:
    import numpy as np
    import torch

    from dtm_codec import DTMCodec
    from dtm_codec.speech.audio import read_audio, sample_path

    torch.set_num_threads(threads)
    codec = DTMCodec.from_pretrained(model)
    rate = codec.config.sample_rate
    speech = read_audio(sample_path(), rate)[0]
    audio = np.resize(speech, seconds * rate)
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runs = 3 if seconds <= 60 else 1
    codec.decode(codec.encode(audio[: 3 * rate], rate))  # first calls compile and allocate
    encode_s, encoded = best_of(runs, lambda: codec.encode(audio, rate))
    decode_s, _ = best_of(runs, lambda: codec.decode(encoded))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    minute = codec.encode(audio[: 60 * rate], rate)  # profiles of hours do not fit in memory
    shares = matrix_share(lambda: codec.encode(audio[: 60 * rate], rate)), matrix_share(lambda: codec.decode(minute))
    pipe.send((codec.num_parameters, encode_s / seconds, decode_s / seconds, *shares, loaded / 1024, peak / 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="random:vfr-50")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=int, nargs="+", default=[10, 60, 600])
    options = parser.parse_args()
    table = Table(title=f"{options.model}, fp32, {options.threads} thread(s)")
    for name in ("audio", "encode RTF", "products", "decode RTF", "products", "loaded MB", "peak MB"):
        table.add_column(name, justify="right")
    context = multiprocessing.get_context("spawn")
    for seconds in options.seconds:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=measure, args=(options.model, options.threads, seconds, sender))
        process.start()
        sender.close()
        _, encode, decode, encode_share, decode_share, loaded, peak = receiver.recv()
        process.join()
        table.add_row(
            f"{seconds} s",
            f"{encode:.3f}",
            f"{encode_share:.0%}",
            f"{decode:.3f}",
            f"{decode_share:.0%}",
            f"{loaded:.0f}",
            f"{peak:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
