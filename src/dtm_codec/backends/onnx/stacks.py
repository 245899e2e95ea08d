"""A transformer stack as a graph: `nn/transformer.py` and `nn/attention.py` once more, in ONNX.

Attention works on blocks of `window` steps that see themselves and the two blocks beside them. So there is no matrix of
N x N here either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...config import CodecConfig, Stack
from .graph import LAST, MICROSOFT, Graph


@dataclass(frozen=True)
class _Plan:
    """What all layers share: names of values in the graph."""

    bias: str
    """(blocks, window, 3 window)"""
    around: str
    """(blocks, 3) which blocks each block sees; where there is none, any: the bias hides it"""
    cos: str
    """(S, head_dim / 2)"""
    sin: str


def add_stack(graph: Graph, config: CodecConfig, stack: Stack) -> None:
    """x: (S, D), positions: (S,) -> y: (S, D)"""
    x = graph.input("x", "float32", ("steps", config.dim))
    positions = graph.input("positions", "int64", ("steps",))
    steps = graph.length(x)
    window = graph.integers(config.window)
    blocks = graph.add("Div", graph.plus(steps, graph.integers(config.window - 1)), window)
    tail = graph.minus(graph.mul(blocks, window), steps)  # fills the last block
    before = graph.integers(0)
    x = graph.add("Pad", x, graph.add("Concat", graph.integers(0, 0), tail, before, axis=0))
    ends = graph.add("Concat", before, tail, axis=0)
    sequence = graph.add("CumSum", graph.cast(_equal(graph, positions, 0), "int64"), graph.constant(0, "int64"))
    # -1: padding at the end, seen by no real query; -2: outside, seen by none
    sequence = graph.add("Pad", sequence, ends, graph.constant(-1, "int64"))
    positions = graph.add("Pad", positions, ends, graph.constant(0, "int64"))
    bias = _bias(graph, config, stack, sequence, positions)
    plan = _Plan(bias, _around(graph, blocks), *_angles(graph, config, positions))
    for layer in range(config.layers(stack)):
        x = _block(graph, config, x, f"{stack}.blocks.{layer}", plan)
    normed = _norm(graph, x, f"{stack}.norm", config.norm_eps)
    graph.output(graph.slice(normed, 0, steps), "y", "float32", ("steps", config.dim))


def _equal(graph: Graph, x: str, value: int) -> str:
    return graph.add("Equal", x, graph.constant(value, "int64"))


def _angles(graph: Graph, config: CodecConfig, positions: str) -> tuple[str, str]:
    """RoPE, in float64 until the angles are wrapped."""
    head_dim = config.dim // config.heads
    rates = config.rope_base ** -(np.arange(0, head_dim, 2) / head_dim)
    times = graph.reshape(graph.cast(positions, "float64"), -1, 1)
    angles = graph.wrapped(graph.mul(times, graph.constant(rates, "float64")))
    return graph.add("Cos", angles), graph.add("Sin", angles)


def _bias(graph: Graph, config: CodecConfig, stack: Stack, sequence: str, positions: str) -> str:
    """0 where a key is seen, very low elsewhere."""
    window, ahead = config.window, config.lookahead(stack)
    own, keys = _with_neighbours(graph, sequence, window, -2)
    seen = graph.add("Equal", own, keys)
    distance = np.arange(window)[:, None] - np.arange(-window, 2 * window)
    seen = graph.add("And", seen, graph.constant(np.abs(distance) <= window, "bool"))
    if ahead is not None:
        own, keys = _with_neighbours(graph, positions, window, 0)
        near = graph.add("LessOrEqual", graph.minus(keys, own), graph.constant(ahead, "int64"))
        seen = graph.add("And", seen, near)
    # Not -inf: a padding query may see nothing, and all its weights would be NaN.
    hidden = graph.constant(np.finfo(np.float32).min / 2)
    return graph.add("Where", seen, graph.constant(0.0), hidden)


def _around(graph: Graph, blocks: str) -> str:
    """blocks: (1,) their number"""
    zero, one = (graph.constant(value, "int64") for value in (0, 1))
    own = graph.reshape(graph.add("Range", zero, graph.add("Squeeze", blocks), one), -1, 1)
    near = graph.plus(own, graph.integers(-1, 0, 1))
    return graph.add("Min", graph.add("Max", near, zero), graph.minus(blocks, one))


def _with_neighbours(graph: Graph, x: str, window: int, outside: int) -> tuple[str, str]:
    """A number per step, for queries (blocks, window, 1) and for their keys (blocks, 1, 3 window)."""
    blocked = graph.reshape(x, -1, window)
    edges = graph.integers(1, 0, 1, 0)
    around = graph.add("Pad", blocked, edges, graph.constant(outside, "int64"))
    parts = (graph.slice(around, 0, -2), blocked, graph.slice(around, 2, LAST))
    keys = graph.add("Concat", *parts, axis=1)
    return graph.reshape(blocked, -1, window, 1), graph.reshape(keys, -1, 1, 3 * window)


def _norm(graph: Graph, x: str, name: str, eps: float, factor: float = 1.0) -> str:
    """RMSNorm over the last axis, in the form that onnxruntime knows as one operator, times a factor."""
    mean = graph.add("ReduceMean", graph.add("Pow", x, graph.constant(2.0)), axes=(-1,), keepdims=1)
    root = graph.add("Sqrt", graph.plus(mean, graph.constant(eps)))
    return graph.mul(graph.add("Div", x, root), graph.weight(f"{name}.weight", factor))


def _block(graph: Graph, config: CodecConfig, x: str, name: str, plan: _Plan) -> str:
    normed = _norm(graph, x, f"{name}.attention_norm", config.norm_eps)
    attended = _attention(graph, config, normed, f"{name}.attention", plan)
    x = graph.linear(attended, f"{name}.attention.out", scale=f"{name}.attention_scale", onto=x)
    normed = _norm(graph, x, f"{name}.mlp_norm", config.norm_eps)
    gate, value, units = graph.gate_and_value(normed, f"{name}.mlp.gate_and_value")
    hidden = graph.mul(graph.mul(gate, graph.add("Sigmoid", gate)), value)
    return graph.linear(hidden, f"{name}.mlp.out", scale=f"{name}.mlp_scale", onto=x, units=units)


def _attention(graph: Graph, config: CodecConfig, x: str, name: str, plan: _Plan) -> str:
    heads, width, window = config.heads, config.dim // config.heads, config.window

    def heads_first(part: str) -> str:
        """(S, D) -> (H, S, d)"""
        return graph.add("Transpose", graph.reshape(part, -1, heads, width), perm=(1, 0, 2))

    def with_neighbours(part: str) -> str:
        """(S, D) -> (H, blocks, 3 window, d)"""
        blocks = graph.reshape(heads_first(part), heads, -1, window * width)
        return graph.reshape(graph.add("Gather", blocks, plan.around, axis=1), heads, -1, 3 * window, width)

    q, k, v = graph.linear_parts(x, f"{name}.qkv", 3)
    normed = (
        _norm(graph, graph.reshape(part, -1, heads, width), f"{name}.{kind}_norm", config.norm_eps, factor)
        for part, kind, factor in ((q, "query", width**-0.5), (k, "key", 1.0))
    )
    q, k = (_rotated(graph, config, part, plan) for part in normed)
    queries = graph.reshape(heads_first(q), heads, -1, window, width)
    keys, values = with_neighbours(k), with_neighbours(v)
    scores = graph.add("MatMul", queries, graph.add("Transpose", keys, perm=(0, 1, 3, 2)))
    weights = graph.add("Softmax", graph.plus(scores, plan.bias), axis=-1)
    attended = graph.add("MatMul", weights, values)  # (H, blocks, window, d)
    return graph.reshape(graph.add("Transpose", attended, perm=(1, 2, 0, 3)), -1, config.dim)


def _rotated(graph: Graph, config: CodecConfig, x: str, plan: _Plan) -> str:
    """RoPE: the two halves of a head are real and imaginary parts. (S, H, d) -> (1, S, D)"""
    rows = graph.reshape(x, 1, -1, config.dim)
    return graph.add(f"{MICROSOFT}.RotaryEmbedding", rows, graph.integers(0), plan.cos, plan.sin)
