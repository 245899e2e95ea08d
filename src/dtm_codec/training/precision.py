"""Which precision is fastest here: 16-bit products are twice as fast on some processors, slow or fatal on others."""

from __future__ import annotations

import logging
import multiprocessing
import time
from multiprocessing.connection import Connection

import torch

from .config import FabricPrecision, Precision

log = logging.getLogger(__name__)

PROBE = (1600, 256, 1408)
"""Rows, inputs and outputs of a product as a step of the small model has them."""
LIMIT = 60.0
"""Seconds for the measurement; processors without the instructions may take for ever."""
WORTHWHILE = 1.2
"""How much faster 16-bit products must be: the casts around them take time too."""


def resolve(precision: Precision, accelerator: str) -> FabricPrecision:
    """What `auto` means on this machine; anything else is as asked for."""
    if precision != "auto":
        return precision
    if accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "32-true"
    gain = measured_gain()
    chosen: FabricPrecision = "bf16-mixed" if gain >= WORTHWHILE else "32-true"
    log.info("precision: %s (16-bit products are %.1f times as fast as 32-bit ones here)", chosen, gain)
    return chosen


def measured_gain() -> float:
    """How many times faster products are in 16 bits. 0 if they are not to be had.

    Measured in a process of its own: a processor that claims instructions it does not have ends the process.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(sender, torch.get_num_threads()), daemon=True)
    process.start()
    sender.close()
    try:
        return float(receiver.recv()) if receiver.poll(LIMIT) else 0.0
    except EOFError:  # the process ended before it had an answer
        return 0.0
    finally:
        process.kill()
        process.join()


def _measure(sender: Connection, threads: int) -> None:
    torch.set_num_threads(threads)
    sender.send(_seconds(torch.float32) / _seconds(torch.bfloat16))


def _seconds(dtype: torch.dtype) -> float:
    rows, inputs, outputs = PROBE
    a, b = torch.ones(rows, inputs, dtype=dtype), torch.ones(inputs, outputs, dtype=dtype)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return min(times)
