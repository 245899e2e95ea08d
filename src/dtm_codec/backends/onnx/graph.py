"""A graph under construction: each method adds a node and returns the name of what it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import ModelError
from . import protobuf

OPSET = 17
IR_VERSION = 8
MICROSOFT = "com.microsoft"
"""Operators of onnxruntime's own, on every platform it runs on."""
OPSETS = {"": OPSET, MICROSOFT: 1}

MAX_BYTES = (1 << 31) - (1 << 20)
"""A protobuf message has less than 2 GB."""

SHARED = 1024
"""A constant of up to this many numbers is stored once, however often it is used."""

LAST = np.iinfo(np.int64).max
"""Where a slice stops that goes to the end."""

Precision: TypeAlias = Literal["fp32", "fp16", "int8"]
"""How weights are stored. fp32: as they are computed with. fp16: in half the space, computed with in 32 bits. int8: the
matrices in 8 bits, multiplied with activations that are rounded to 8 bits on the way."""

Array: TypeAlias = npt.NDArray[Any]
Weights: TypeAlias = Mapping[str, Array]
"""Tensors of a model by name, float16 or float32."""

Shape: TypeAlias = tuple[int | str, ...]


@dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    dtype: str
    shape: Shape
    """A string names a size that is free; equal names mean equal sizes."""


_ZEROS = {"uint8": 128, "int8": 0}
"""What stands for 0 in bytes: first those that are multiplied, then those that they are multiplied with."""

LARGEST = {"uint8": 127, "int8": 63}
"""How far bytes go from there. Processors without VNNI add two products in 16 bits, where 2 x 255 x 63 fits."""


class Rounded(NamedTuple):
    """Rows in 8 bits: names of values in a graph."""

    values: str
    """(S, D) uint8, around 128"""
    steps: str
    """(S, 1) what 1 stands for in each row"""


class Graph:
    def __init__(self, name: str, weights: Weights, precision: Precision) -> None:
        self.name, self.precision = name, precision
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self._weights = weights
        self._nodes: list[bytes] = []
        self._tensors: dict[str, list[protobuf.Buffer]] = {}
        self._constants: dict[tuple[Any, ...], str] = {}
        self._zeros: str | None = None

    def input(self, name: str, dtype: str, shape: Shape) -> str:
        self.inputs.append(Port(name, dtype, shape))
        return name

    def output(self, value: str, name: str, dtype: str, shape: Shape) -> None:
        self._nodes.append(protobuf.node("Identity", [value], [name], {}))
        self.outputs.append(Port(name, dtype, shape))

    def add(self, operator: str, *inputs: str, **attributes: protobuf.Attribute) -> str:
        """A node with one output."""
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(protobuf.node(operator, inputs, [name], attributes))
        return name

    def split(self, x: str, parts: int, axis: int = -1) -> list[str]:
        """Equal parts."""
        names = [f"Split_{len(self._nodes)}_{part}" for part in range(parts)]
        self._nodes.append(protobuf.node("Split", [x], names, {"axis": axis}))
        return names

    def constant(self, values: npt.ArrayLike, dtype: str = "float32") -> str:
        """A small or computed tensor; a small one that comes again is stored once."""
        array = np.asarray(values, dtype)
        key = (dtype, array.shape, array.tobytes() if array.size <= SHARED else len(self._constants))
        if key not in self._constants:
            self._constants[key] = self._store(f"constant_{len(self._constants)}", array)
        return self._constants[key]

    def _store(self, name: str, values: Array) -> str:
        self._tensors.setdefault(name, protobuf.tensor(name, values))
        return name

    def weight(self, name: str, factor: float = 1.0) -> str:
        """A tensor of the model, times a factor."""
        values = self._weights[name]
        if factor != 1:
            values = values.astype(np.float32) * np.float32(factor)
        if self.precision == "fp16" and values.ndim == 2:
            return self.cast(self._store(name, values.astype(np.float16)), "float32")
        return self._store(name, values.astype(np.float32))

    def largest(self, name: str) -> float:
        """Of the sizes of a model's numbers; above 0, so that it can be a step."""
        return max(float(np.abs(self._weights[name].astype(np.float32)).max()), 1e-12)

    def linear(
        self,
        x: str,
        name: str,
        *,
        scale: str | None = None,
        onto: str | None = None,
        units: str | None = None,
        columns: Array | None = None,
        exact: bool = False,
    ) -> str:
        """x @ weight.T + bias of a layer, times a vector if there is one to scale its outputs. (S, in) -> (S, out)

        onto: (S, out) to add the output of a layer without bias to; units: (S, 1) of x, in 8 bits; columns: the inputs
        that x has, in its order; exact: never with numbers of 8 bits
        """
        weight, bias = self._weights[f"{name}.weight"], f"{name}.bias"
        weight = weight if columns is None else weight[:, columns]
        if bias in self._weights:
            onto = self.weight(bias)
        if self.precision == "int8" and not exact:
            rounded = self.rounded(x)
            if units is not None:
                rounded = rounded._replace(steps=self.mul(rounded.steps, units))
            product = self.rounded_product(rounded, f"{name}.weight", self._scaled(weight, scale))
            return product if onto is None else self.plus(product, onto)
        return self._product(x, f"{name}.weight", weight, scale, onto)

    def linear_parts(self, x: str, name: str, parts: int, order: Array | None = None) -> list[str]:
        """The output of a layer in equal parts: what is never joined need not be split. order: of the outputs in each
        (S, in) -> (S, out / parts) each"""
        taken = slice(None) if order is None else order
        weights = [weight[taken] for weight in np.split(self._weights[f"{name}.weight"], parts)]
        biases: list[str | None] = [None] * parts
        if f"{name}.bias" in self._weights:
            biases = [self.constant(bias[taken]) for bias in np.split(self._weights[f"{name}.bias"], parts)]
        named = [(f"{name}.weight.{part}", weight) for part, weight in enumerate(weights)]
        if self.precision != "int8":
            return [self._product(x, *part, onto=bias) for part, bias in zip(named, biases, strict=True)]
        rounded = self.rounded(x)
        products = [self.rounded_product(rounded, part, self._scaled(weight)) for part, weight in named]
        return [p if bias is None else self.plus(p, bias) for p, bias in zip(products, biases, strict=True)]

    def gate_and_value(self, x: str, name: str) -> tuple[str, str, str | None]:
        """The two parts of a SwiGLU layer, and the units of the second, (S, 1), where they are not 1. In 8 bits, units
        can wait for the next product, which has some of its own. (S, in) -> (S, out / 2) each"""
        if self.precision != "int8":
            gate, value = self.linear_parts(x, name, 2)
            return gate, value, None
        rounded = self.rounded(x)
        first, second = map(self._scaled, np.split(self._weights[f"{name}.weight"], 2))
        gate = self.rounded_product(rounded, f"{name}.weight.0", first)
        return gate, self.rounded_product(rounded, f"{name}.weight.1", second, scaled=False), rounded.steps

    def _product(self, x: str, name: str, weight: Array, scale: str | None = None, onto: str | None = None) -> str:
        if self.precision == "fp16":  # folded when it is loaded
            matrix = self.cast(self._store(name, weight.astype(np.float16)), "float32")
            matrix = matrix if scale is None else self.mul(matrix, self.reshape(self.weight(scale), -1, 1))
        else:
            matrix = self._store(name, self._scaled(weight, scale))
        return self.add("Gemm", x, matrix, *([] if onto is None else [onto]), transB=1)

    def _scaled(self, weight: Array, scale: str | None = None) -> Array:
        """(out, in), times a number for each output."""
        matrix = weight.astype(np.float32)
        return matrix if scale is None else matrix * self._weights[scale].astype(np.float32)[:, None]

    def rounded(self, x: str) -> Rounded:
        """Rows in 8 bits. Each has a step of its own, so that it comes out the same whatever is beside it."""
        highest, lowest = (self.add(kind, x, axes=(-1,), keepdims=0) for kind in ("ReduceMax", "ReduceMin"))
        peak = self.add("Max", highest, self.add("Neg", lowest))
        steps = self.add("Max", self.mul(peak, self.constant(1 / LARGEST["uint8"])), self.constant(1e-12))
        if self._zeros is None:  # all that a graph rounds has as many rows
            self._zeros = self.add("Expand", self.constant(_ZEROS["uint8"], "uint8"), self.add("Shape", steps))
        return Rounded(self.add("QuantizeLinear", x, steps, self._zeros, axis=0), self.reshape(steps, -1, 1))

    def rounded_product(self, x: Rounded, name: str, matrix: Array, scaled: bool = True) -> str:
        """Products of 8-bit integers; weights have a step of their own for each output. scaled: times the steps of the
        rows, otherwise in units of them. matrix: (out, in)"""
        step = np.maximum(np.abs(matrix).max(axis=1), 1e-12) / LARGEST["int8"]
        weight = self._store(name, np.round(matrix / step[:, None]).astype(np.int8).T)
        product = self.byte_product(x.values, weight, step)
        return self.mul(product, x.steps) if scaled else product

    def in_bytes(self, x: str, step: float, kind: Literal["uint8", "int8"]) -> str:
        """In 8 bits with one step for all. x: never more than `LARGEST` steps"""
        return self.add("QuantizeLinear", x, self.constant(step), self.constant(_ZEROS[kind], kind))

    def byte_product(self, a: str, b: str, step: npt.ArrayLike) -> str:
        """uint8 around 128 times int8: processors multiply unsigned with signed bytes. step: what 1 stands for, in all
        or in each column"""
        zeros = (self.constant(zero, kind) for kind, zero in _ZEROS.items())
        return self.add(f"{MICROSOFT}.MatMulIntegerToFloat", a, b, self.constant(1.0), self.constant(step), *zeros)

    def plus(self, a: str, b: str) -> str:
        return self.add("Add", a, b)

    def minus(self, a: str, b: str) -> str:
        return self.add("Sub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.add("Mul", a, b)

    def cast(self, x: str, dtype: str) -> str:
        return self.add("Cast", x, to=protobuf.TYPES[dtype])

    def integers(self, *values: int) -> str:
        return self.constant(values, "int64")

    def slice(self, x: str, start: int, stop: int | str, axis: int = 0) -> str:
        """x[start:stop] of an axis; a `stop` that is a name is computed in the graph, (1,) int64."""
        end = stop if isinstance(stop, str) else self.integers(stop)
        return self.add("Slice", x, self.integers(start), end, self.integers(axis))

    def reshape(self, x: str, *sizes: int) -> str:
        """-1 stands for what is left, 0 for the size that it had."""
        return self.add("Reshape", x, self.integers(*sizes))

    def length(self, x: str) -> str:
        """Size of the first axis, (1,) int64."""
        return self.slice(self.add("Shape", x), 0, 1)

    def wrapped(self, angle: str) -> str:
        """An angle in float64 between -pi and pi, as float32."""
        turns = self.mul(angle, self.constant(1 / (2 * np.pi), "float64"))
        whole = self.add("Floor", self.plus(turns, self.constant(0.5, "float64")))
        return self.cast(self.minus(angle, self.mul(whole, self.constant(2 * np.pi, "float64"))), "float32")

    def to_bytes(self) -> bytes:
        """The graph as an ONNX file."""
        total = sum(map(protobuf.size_of, self._tensors.values()))
        if total > MAX_BYTES:
            raise ModelError(f"graph {self.name!r} of {total} bytes; allowed: up to {MAX_BYTES}")
        inputs, outputs = (_values(ports) for ports in (self.inputs, self.outputs))
        return protobuf.model(
            self.name, self._nodes, self._tensors.values(), inputs, outputs, opsets=OPSETS, ir_version=IR_VERSION
        )


def _values(ports: Sequence[Port]) -> list[bytes]:
    return [protobuf.value(port.name, port.dtype, port.shape) for port in ports]
