"""Graphs of the bottleneck: vectors to codes and back, as `nn/quantizers.py` does it."""

from __future__ import annotations

import math

import numpy as np

from ...config import REVIEW_ERROR_SCALE, REVIEW_SIGHT, CodecConfig
from .graph import Graph, Weights


def add_quantize(graph: Graph, config: CodecConfig) -> None:
    """z2: (S, D) -> codes: (S,), the nearest of the codebook by cosine"""
    _add_nearest(graph, config, _wanted(graph, graph.input("z2", "float32", ("tokens", config.dim))))


def add_nearest(graph: Graph, config: CodecConfig) -> None:
    """latents: (S, d), what a review asks for -> codes: (S,)"""
    _add_nearest(graph, config, graph.input("latents", "float32", ("tokens", config.quantizer.dim)))


def add_review(graph: Graph, config: CodecConfig) -> None:
    """z2: (S, D), codes: (S,), positions: (S,), some: (T,) indices -> latents: (T, d), as `Review` moves them"""
    z2 = graph.input("z2", "float32", ("tokens", config.dim))
    codes, positions = (graph.input(name, "int64", ("tokens",)) for name in ("codes", "positions"))
    some = graph.input("some", "int64", ("some",))
    wanted = _wanted(graph, z2)
    chosen = graph.add("Gather", _unit(graph, graph.weight("quantizer.codebook")), codes)
    features = _seen(graph, chosen, graph.minus(wanted, chosen), positions, some)
    token = graph.linear(graph.add("Gather", z2, some), "quantizer.review.token")
    hidden = graph.plus(token, graph.linear(features, "quantizer.review.neighbours"))
    hidden = graph.linear(_silu(graph, hidden), "quantizer.review.hidden")
    moves = graph.linear(_silu(graph, hidden), "quantizer.review.out", exact=True)
    moved = _unit(graph, graph.plus(graph.add("Gather", wanted, some), moves))
    graph.output(moved, "latents", "float32", ("some", config.quantizer.dim))


def add_dequantize(graph: Graph, config: CodecConfig) -> None:
    """codes: (S,) -> z2_hat: (S, D)"""
    codes = graph.input("codes", "int64", ("tokens",))
    vectors = graph.add("Gather", _unit(graph, graph.weight("quantizer.codebook")), codes)
    values = graph.linear(vectors, "quantizer.project_out", exact=True)
    graph.output(values, "z2_hat", "float32", ("tokens", config.dim))


def codebook(weights: Weights) -> np.ndarray:
    """What each code stands for before it is projected, unit vectors. -> (V, d)"""
    vectors = weights["quantizer.codebook"].astype(np.float32)
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))


def _wanted(graph: Graph, z2: str) -> str:
    return _unit(graph, graph.linear(z2, "quantizer.project_in", exact=True))


def _add_nearest(graph: Graph, config: CodecConfig, latents: str) -> None:
    directions = graph.add("Transpose", _unit(graph, graph.weight("quantizer.codebook")), perm=(1, 0))
    codes = _argmax(graph, graph.add("MatMul", latents, directions), config.quantizer.codebook_size)
    graph.output(codes, "codes", "int64", ("tokens",))


def _seen(graph: Graph, chosen: str, errors: str, positions: str, some: str) -> str:
    """What a review sees around some tokens. chosen, errors: (S, d), positions: (S,), some: (T,) -> (T, features)"""
    width = 2 * REVIEW_SIGHT + 1
    first, one = graph.integers(0), graph.integers(1)
    column = graph.reshape(some, -1, 1)
    around = graph.plus(column, graph.constant([range(-REVIEW_SIGHT, REVIEW_SIGHT + 1)], "int64"))  # (T, near)
    inside = graph.add("Max", graph.add("Min", around, graph.minus(graph.length(positions), one)), first)
    begins = graph.cast(graph.add("Equal", positions, first), "int64")
    sequence = graph.add("CumSum", begins, graph.constant(0, "int64"))
    same = graph.add("Equal", graph.add("Gather", sequence, inside), graph.add("Gather", sequence, column))
    there = graph.add("And", graph.add("Equal", around, inside), same)
    steps = graph.minus(graph.add("Gather", positions, inside), graph.add("Gather", positions, column))
    steps = graph.cast(graph.add("Max", graph.add("Abs", steps), one), "float32")
    nearness = graph.reshape(graph.add("Reciprocal", steps), -1, width, 1)
    seen = graph.add("Concat", graph.mul(errors, graph.constant(REVIEW_ERROR_SCALE)), chosen, axis=-1)
    seen = graph.add("Concat", graph.add("Gather", seen, inside), nearness, axis=-1)  # (T, near, 2 d + 1)
    seen = graph.mul(seen, graph.reshape(graph.cast(there, "float32"), -1, width, 1))
    return graph.add("Flatten", seen, axis=1)


def _silu(graph: Graph, x: str) -> str:
    return graph.mul(x, graph.add("Sigmoid", x))


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
