"""The graphs of a codec: one for each learned part of Eq. 1, built from a configuration and weights.

    frames -front_end-> x -enc1-> z1 -(select)-> kept -enc2-> z2 -quantize-> codes
    codes -dequantize-> z2_hat -dec1-> h -upsample-> z1_hat -dec2-> y -pitch, head-> frames

What lies between them is arithmetic on a few numbers a step: frames, selectors, phases of pulses, overlap-add
(`coding/chain.py`). docs/onnx.md has the whole interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from ...config import STACKS, CodecConfig
from ...errors import ModelError
from .graph import Graph, Precision, Weights
from .heads import add_head, add_pitch
from .spectral import add_front_end, add_log_mel
from .stacks import add_stack

Builder: TypeAlias = Callable[[Graph, CodecConfig], None]


def _add_quantize(graph: Graph, config: CodecConfig) -> None:
    """z2: (S, D) -> codes: (S,), the nearest of the codebook by cosine"""
    z2 = graph.input("z2", "float32", ("tokens", config.dim))
    latents = _unit(graph, graph.linear(z2, "quantizer.project_in", exact=True))
    directions = graph.add("Transpose", _unit(graph, graph.weight("quantizer.codebook")), perm=(1, 0))
    similarities = graph.add("MatMul", latents, directions)
    graph.output(_argmax(graph, similarities, config.quantizer.codebook_size), "codes", "int64", ("tokens",))


def _add_dequantize(graph: Graph, config: CodecConfig) -> None:
    """codes: (S,) -> z2_hat: (S, D)"""
    codes = graph.input("codes", "int64", ("tokens",))
    vectors = graph.add("Gather", _unit(graph, graph.weight("quantizer.codebook")), codes)
    values = graph.linear(vectors, "quantizer.project_out", exact=True)
    graph.output(values, "z2_hat", "float32", ("tokens", config.dim))


def _argmax(graph: Graph, x: str, size: int) -> str:
    """The first of the largest in each row, (S, size) -> (S,). Maxima of blocks come first: that takes half the time of
    an ArgMax over all."""
    block = max(width for width in range(1, math.isqrt(size) + 1) if size % width == 0)
    if block == 1:
        return graph.add("ArgMax", x, axis=-1, keepdims=0)
    blocks = graph.reshape(x, -1, size // block, block)
    highest = graph.add("ArgMax", graph.add("ReduceMax", blocks, axes=(-1,), keepdims=0), axis=-1, keepdims=1)  # (S, 1)
    inside = graph.add("GatherND", blocks, highest, batch_dims=1)  # (S, block)
    within = graph.add("ArgMax", inside, axis=-1, keepdims=0)
    start = graph.mul(graph.reshape(highest, -1), graph.constant(block, "int64"))
    return graph.plus(start, within)


def _unit(graph: Graph, x: str) -> str:
    """Rows of length one."""
    length = graph.add("ReduceL2", x, axes=(-1,), keepdims=1)
    return graph.add("Div", x, graph.add("Max", length, graph.constant(1e-12)))


def _add_upsample(graph: Graph, config: CodecConfig) -> None:
    """h: (K, D), mask: (N,) of which the first is kept -> z1_hat: (N, D): kept vectors in their places, <MASK> (or the
    vector before) elsewhere"""
    h = graph.input("h", "float32", ("tokens", config.dim))
    mask = graph.input("mask", "bool", ("steps",))
    kept = graph.add("CumSum", graph.cast(mask, "int64"), graph.constant(0, "int64"))
    z1_hat = graph.add("Gather", h, graph.minus(kept, graph.constant(1, "int64")))
    if config.upsampler == "mask":
        z1_hat = graph.add("Where", graph.reshape(mask, -1, 1), z1_hat, graph.weight("up.embedding"))
    graph.output(z1_hat, "z1_hat", "float32", ("steps", config.dim))


_BUILDERS: dict[str, Builder] = {
    "front_end": add_front_end,
    "log_mel": add_log_mel,
    **{stack: partial(add_stack, stack=stack) for stack in STACKS},
    "quantize": _add_quantize,
    "dequantize": _add_dequantize,
    "upsample": _add_upsample,
    "pitch": add_pitch,
    "head": add_head,
}

_ALLOWED = {"downsampler": ("pack",), "upsampler": ("mask", "repeat"), "quantizer.kind": ("vq",)}
"""What there are graphs for."""


def _missing(config: CodecConfig) -> str | None:
    """What a model has that exists in torch only."""
    values = {"downsampler": config.downsampler, "upsampler": config.upsampler, "quantizer.kind": config.quantizer.kind}
    for name, allowed in _ALLOWED.items():
        if values[name] not in allowed:
            return (
                f"{name} = {values[name]!r} in ONNX; allowed: {' or '.join(map(repr, allowed))}; torch has the others"
            )
    return None


def has_graphs(config: CodecConfig) -> bool:
    return _missing(config) is None


def check_has_graphs(config: CodecConfig) -> None:
    """Refuse a model of parts that exist in torch only."""
    missing = _missing(config)
    if missing is not None:
        raise ModelError(missing)


def graph_names(config: CodecConfig) -> list[str]:
    """The graphs that a model needs with its own selector."""
    unneeded = set()
    if config.selector.features != "logmel":
        unneeded.add("log_mel")
    if config.head != "source-filter":
        unneeded.add("pitch")
    return [name for name in _BUILDERS if name not in unneeded]


def build_graph(name: str, config: CodecConfig, weights: Weights, precision: Precision = "fp32") -> Graph:
    graph = Graph(name, weights, precision)
    _BUILDERS[name](graph, config)
    return graph


def codebook(weights: Weights) -> np.ndarray:
    """What each code stands for before it is projected, unit vectors. -> (V, d)"""
    vectors = weights["quantizer.codebook"].astype(np.float32)
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))
