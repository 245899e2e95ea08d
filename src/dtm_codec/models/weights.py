"""Names and shapes of all tensors that a configuration has, without making any of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..config import PITCH_BINS, STACKS, CodecConfig, Stack

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]

TAU = "tau"
"""Not learned by gradient, and the only one of 64 bits."""


def shapes(config: CodecConfig) -> dict[str, Shape]:
    """All tensors that inference needs, by name."""
    return dict(_shapes(config))


def dtype_of(name: str) -> np.dtype[Any]:
    """What a tensor is computed with."""
    return np.dtype(np.float64 if name == TAU else np.float32)


def num_parameters(config: CodecConfig) -> int:
    """Numbers that are learned."""
    return sum(int(np.prod(shape)) for name, shape in _shapes(config) if name != TAU)


def _shapes(config: CodecConfig) -> Iterator[tuple[str, Shape]]:
    dim, bins, conv = config.dim, config.n_fft // 2 + 1, (config.stride * config.dim, config.dim)
    yield TAU, ()
    widths = {"complex": 2 * bins, "complex+logmag": 3 * bins, "complex+logmag+pitch": 3 * bins + PITCH_BINS}
    yield from _linear("front_end.project", widths[config.spectral_features], dim)
    for stack in STACKS:
        yield from _stack(config, stack)
    if config.downsampler == "conv":
        yield from _linear("down.project", *conv)
    if config.upsampler == "conv":
        yield from _linear("up.project", *conv[::-1])
    elif config.upsampler == "mask":
        yield "up.embedding", (dim,)
    quantizer = config.quantizer
    code_dim = quantizer.dim if quantizer.kind == "vq" else len(quantizer.levels)
    yield from _linear("quantizer.project_in", dim, code_dim)
    yield from _linear("quantizer.project_out", code_dim, dim)
    if quantizer.kind == "vq":
        yield "quantizer.codebook", (quantizer.codebook_size, quantizer.dim)
    if config.head == "istft":
        yield from _linear("head.project", dim, 2 * bins)
    else:
        yield from _linear("head.project", dim, 3 * bins)
        yield from _linear("head.project_pitch", dim, PITCH_BINS)


def _linear(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _stack(config: CodecConfig, stack: Stack) -> Iterator[tuple[str, Shape]]:
    dim, hidden, head = config.dim, config.mlp_hidden, config.dim // config.heads
    for layer in range(config.layers(stack)):
        block = f"{stack}.blocks.{layer}"
        for name in ("attention_norm.weight", "attention_scale", "mlp_norm.weight", "mlp_scale"):
            yield f"{block}.{name}", (dim,)
        for name in ("query_norm", "key_norm"):
            yield f"{block}.attention.{name}.weight", (head,)
        yield f"{block}.attention.qkv.weight", (3 * dim, dim)
        yield f"{block}.attention.out.weight", (dim, dim)
        yield f"{block}.mlp.gate_and_value.weight", (2 * hidden, dim)
        yield f"{block}.mlp.out.weight", (dim, hidden)
    yield f"{stack}.norm.weight", (dim,)
