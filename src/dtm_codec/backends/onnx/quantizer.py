"""Graphs of the bottleneck: vectors to codes and back, as `nn/quantizers.py` does it."""

from __future__ import annotations

import math

import numpy as np

from ...config import REVIEW_SIGHT, REVIEW_TURNS, CodecConfig
from ...models.weights import REVIEW_ERROR_SCALE
from .graph import Graph, Weights


def add_quantize(graph: Graph, config: CodecConfig) -> None:
    """z2: (S, D) -> codes: (S,), the nearest of the codebook by cosine; a review needs positions: (S,) too"""
    z2 = graph.input("z2", "float32", ("tokens", config.dim))
    wanted = _unit(graph, graph.linear(z2, "quantizer.project_in", exact=True))
    vectors = _unit(graph, graph.weight("quantizer.codebook"))
    directions = graph.add("Transpose", vectors, perm=(1, 0))
    size = config.quantizer.codebook_size
    codes = _argmax(graph, graph.add("MatMul", wanted, directions), size)
    if config.quantizer.review:
        positions = graph.input("positions", "int64", ("tokens",))
        turns = graph.add("Mod", positions, graph.integers(REVIEW_TURNS))
        for turn in range(REVIEW_TURNS):
            own = graph.reshape(graph.add("NonZero", graph.add("Equal", turns, graph.integers(turn))), -1)
            some = graph.add(
                "Concat", own, graph.integers(0), axis=0
            )  # and one more, for no operator likes none at all
            chosen = graph.add("Gather", vectors, codes)
            moves = _review(graph, z2, chosen, graph.minus(wanted, chosen), positions, some)
            moved = _unit(graph, graph.plus(graph.add("Gather", wanted, some), moves))
            found = _argmax(graph, graph.add("MatMul", moved, directions), size)
            codes = graph.add("ScatterElements", codes, own, graph.slice(found, 0, -1))
    graph.output(codes, "codes", "int64", ("tokens",))


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


def _review(graph: Graph, z2: str, chosen: str, errors: str, positions: str, some: str) -> str:
    """How to move the latents of some tokens; arguments as `Review` has them. -> (T, d)"""
    width = 2 * REVIEW_SIGHT + 1
    column = graph.reshape(some, -1, 1)
    around = graph.plus(column, graph.constant([range(-REVIEW_SIGHT, REVIEW_SIGHT + 1)], "int64"))  # (T, near)
    last = graph.minus(graph.length(z2), graph.integers(1))
    inside = graph.add("Max", graph.add("Min", around, last), graph.integers(0))
    sequence = graph.add("CumSum", graph.cast(graph.add("Equal", positions, graph.integers(0)), "int64"), _first(graph))
    same = graph.add("Equal", graph.add("Gather", sequence, inside), graph.add("Gather", sequence, column))
    there = graph.add("And", graph.add("Equal", around, inside), same)
    steps = graph.minus(graph.add("Gather", positions, inside), graph.add("Gather", positions, column))
    steps = graph.cast(graph.add("Max", graph.add("Abs", steps), graph.integers(1)), "float32")
    nearness = graph.reshape(graph.add("Reciprocal", steps), -1, width, 1)
    seen = graph.add("Concat", graph.mul(errors, graph.constant(REVIEW_ERROR_SCALE)), chosen, axis=-1)
    seen = graph.add("Concat", graph.add("Gather", seen, inside), nearness, axis=-1)  # (T, near, 2 d + 1)
    features = graph.mul(seen, graph.reshape(graph.cast(there, "float32"), -1, width, 1))
    features = graph.add("Flatten", features, axis=1)
    token = graph.linear(graph.add("Gather", z2, some), "quantizer.review.token", exact=True)
    hidden = graph.plus(token, graph.linear(features, "quantizer.review.neighbours", exact=True))
    hidden = graph.linear(_silu(graph, hidden), "quantizer.review.hidden", exact=True)
    return graph.linear(_silu(graph, hidden), "quantizer.review.out", exact=True)


def _first(graph: Graph) -> str:
    """The first axis, where an operator wants it as an input."""
    return graph.constant(0, "int64")


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
