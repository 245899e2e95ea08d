"""One training step of our VQ against `vector-quantize-pytorch` at the paper's codebook sizes.

pip install vector-quantize-pytorch && python benchmarks/quantizer.py [--tokens 1600]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from vector_quantize_pytorch import VectorQuantize

from dtm_codec.nn.quantizers import VectorQuantizer


def step_milliseconds(quantize: Callable[[Tensor], tuple[Tensor, Tensor]], z2: Tensor, runs: int = 5) -> float:
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        values, loss = quantize(z2)
        (values.sum() + loss).backward()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1600, help="a batch of 16 crops of 2 s at 50 Hz")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dim, code_dim = 256, 8
    table = Table(title=f"forward and backward of {options.tokens} tokens, {options.threads} thread(s), ms")
    for name in ("codes", "ours", "vector-quantize-pytorch"):
        table.add_column(name, justify="right")
    for size in (16_384, 65_536):
        z2 = torch.randn(options.tokens, dim, requires_grad=True)
        own = VectorQuantizer(dim, size, code_dim)

        def ours(x: Tensor, own: VectorQuantizer = own) -> tuple[Tensor, Tensor]:
            output = own(x)
            return output.values, output.loss

        library = VectorQuantize(dim, codebook_size=size, codebook_dim=code_dim, use_cosine_sim=True)

        def theirs(x: Tensor, library: VectorQuantize = library) -> tuple[Tensor, Tensor]:
            values, _, loss = library(x[None])
            return values, loss.sum()

        row = [step_milliseconds(quantize, z2) for quantize in (ours, theirs)]
        table.add_row(str(size), *(f"{value:.0f}" for value in row))
    Console().print(table)


if __name__ == "__main__":
    main()
