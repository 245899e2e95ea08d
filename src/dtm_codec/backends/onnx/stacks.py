"""A transformer stack as a graph: `nn/transformer.py` and `nn/attention.py` once more, in ONNX.

Attention works on blocks of `window` steps that see themselves and the two blocks beside them. So there is no matrix of
N x N here either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...config import CodecConfig, Stack
from .graph import LARGEST, MICROSOFT, Graph


@dataclass(frozen=True)
class _Plan:
    """What all layers share: names of values in the graph. Rows are those of (S H, d), the heads of all steps."""

    queries: str
    """(H, blocks, window) rows of each block; past the end, the last step again"""
    keys: str
    """(H, blocks, 3 window) rows of each block and those beside it; outside, any: the bias hides them"""
    attended: str
    """(S, H) where each row is found in (H blocks window, d)"""
    bias: str
    """(blocks, window, 3 window)"""
    cos: str
    """(S, head_dim / 2)"""
    sin: str


def add_stack(graph: Graph, config: CodecConfig, stack: Stack) -> None:
    """x: (S, D), positions: (S,) -> y: (S, D)"""
    x = graph.input("x", "float32", ("steps", config.dim))
    positions = graph.input("positions", "int64", ("steps",))
    plan = _plan(graph, config, stack, graph.length(x), positions)
    for layer in range(config.layers(stack)):
        x = _block(graph, config, x, f"{stack}.blocks.{layer}", plan)
    graph.output(_norm(graph, x, f"{stack}.norm", config.norm_eps), "y", "float32", ("steps", config.dim))


def _plan(graph: Graph, config: CodecConfig, stack: Stack, steps: str, positions: str) -> _Plan:
    """steps: (1,) their number"""
    window, heads = config.window, np.arange(config.heads)
    width, last = graph.integers(window), graph.minus(steps, graph.integers(1))
    blocks = graph.plus(graph.add("Div", last, width), graph.integers(1))
    starts = graph.reshape(graph.mul(_counted(graph, blocks), width), -1, 1)
    queries = graph.add("Min", graph.plus(starts, graph.constant(np.arange(window), "int64")), last)
    around = graph.plus(starts, graph.constant(np.arange(-window, 2 * window), "int64"))
    keys = graph.add("Min", graph.add("Max", around, graph.integers(0)), last)
    query_rows, key_rows = (
        graph.plus(graph.mul(part, graph.integers(config.heads)), graph.constant(heads[:, None, None], "int64"))
        for part in (queries, keys)
    )
    first = graph.mul(graph.constant(heads, "int64"), graph.mul(blocks, width))
    attended = graph.plus(graph.reshape(_counted(graph, steps), -1, 1), first)
    bias = _bias(graph, config, stack, positions, queries, keys, graph.add("Equal", around, keys))
    return _Plan(query_rows, key_rows, attended, bias, *_angles(graph, config, positions))


def _counted(graph: Graph, number: str) -> str:
    """0, 1, 2, ... so many: (1,) -> (number,)"""
    zero, one = (graph.constant(value, "int64") for value in (0, 1))
    return graph.add("Range", zero, graph.add("Squeeze", number), one)


def _angles(graph: Graph, config: CodecConfig, positions: str) -> tuple[str, str]:
    """RoPE, in float64 until the angles are wrapped."""
    head_dim = config.dim // config.heads
    rates = config.rope_base ** -(np.arange(0, head_dim, 2) / head_dim)
    times = graph.reshape(graph.cast(positions, "float64"), -1, 1)
    angles = graph.wrapped(graph.mul(times, graph.constant(rates, "float64")))
    return graph.add("Cos", angles), graph.add("Sin", angles)


def _bias(graph: Graph, config: CodecConfig, stack: Stack, positions: str, queries: str, keys: str, inside: str) -> str:
    """0 where a key is seen, minus infinity elsewhere; every query sees its own. queries: (blocks, window) steps,
    keys: (blocks, 3 window) steps; inside: (blocks, 3 window) whether there is such a key"""
    window, ahead = config.window, config.lookahead(stack)

    def pairs(x: str) -> tuple[str, str]:
        """A number per step, for queries (blocks, window, 1) and for their keys (blocks, 1, 3 window)."""
        of_queries, of_keys = (graph.add("Gather", x, rows) for rows in (queries, keys))
        return graph.reshape(of_queries, -1, window, 1), graph.reshape(of_keys, -1, 1, 3 * window)

    begins = graph.cast(graph.add("Equal", positions, graph.constant(0, "int64")), "int64")
    seen = graph.add("Equal", *pairs(graph.add("CumSum", begins, graph.constant(0, "int64"))))
    seen = graph.add("And", seen, graph.reshape(inside, -1, 1, 3 * window))
    distance = np.arange(window)[:, None] - np.arange(-window, 2 * window)
    seen = graph.add("And", seen, graph.constant(np.abs(distance) <= window, "bool"))
    if ahead is not None:
        own, others = pairs(positions)
        near = graph.add("LessOrEqual", graph.minus(others, own), graph.constant(ahead, "int64"))
        seen = graph.add("And", seen, near)
    return graph.add("Where", seen, graph.constant(0.0), graph.constant(-np.inf))


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
    heads, width = config.heads, config.dim // config.heads

    def in_blocks(part: str, rows: str) -> str:
        """(S, D) -> (H, blocks, rows, d), in one pass over memory"""
        return graph.add("Gather", graph.reshape(part, -1, width), rows)

    def transposed(keys: str) -> str:
        return graph.add("Transpose", keys, perm=(0, 1, 3, 2))

    q, k, v = graph.linear_parts(x, f"{name}.qkv", 3)
    normed = (
        _norm(graph, graph.reshape(part, -1, heads, width), f"{name}.{kind}_norm", config.norm_eps, factor)
        for part, kind, factor in ((q, "query", width**-0.5), (k, "key", 1.0))
    )
    q, k = (_rotated(graph, config, part, plan) for part in normed)
    if graph.precision == "int8":
        # A normed head is at most sqrt(d) long, times its largest weight. So one step fits every row.
        q_step = graph.largest(f"{name}.query_norm.weight") / LARGEST["uint8"]
        k_step = graph.largest(f"{name}.key_norm.weight") * width**0.5 / LARGEST["int8"]
        queries = in_blocks(graph.in_bytes(q, q_step, "uint8"), plan.queries)
        keys = in_blocks(graph.in_bytes(k, k_step, "int8"), plan.keys)
        scores = graph.byte_product(queries, transposed(keys), q_step * k_step)
    else:
        scores = graph.add("MatMul", in_blocks(q, plan.queries), transposed(in_blocks(k, plan.keys)))
    values = in_blocks(v, plan.keys)
    weights = graph.add("Softmax", graph.plus(scores, plan.bias), axis=-1)
    attended = graph.add("MatMul", weights, values)  # (H, blocks, window, d)
    return graph.reshape(graph.add("Gather", graph.reshape(attended, -1, width), plan.attended), -1, config.dim)


def _rotated(graph: Graph, config: CodecConfig, x: str, plan: _Plan) -> str:
    """RoPE: the two halves of a head are real and imaginary parts. (S, H, d) -> (1, S, D)"""
    rows = graph.reshape(x, 1, -1, config.dim)
    return graph.add(f"{MICROSOFT}.RotaryEmbedding", rows, graph.integers(0), plan.cos, plan.sin)
