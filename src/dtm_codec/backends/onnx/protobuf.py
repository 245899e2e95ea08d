"""ONNX files, written without the `onnx` package: the few messages of onnx.proto that our graphs are made of.

`onnx` is a large package, and this is all that a graph needs. Tests read what is written here with `onnx.checker`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Attribute: TypeAlias = int | float | Sequence[int]

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}
"""Numbers that ONNX gives to types of numbers."""

Buffer: TypeAlias = bytes | memoryview

_VARINT, _BYTES, _FIXED32 = 0, 2, 5


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _head(field: int, size: int) -> bytes:
    """What comes before so many bytes."""
    return _varint(field << 3 | _BYTES) + _varint(size)


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _head(field, len(data)) + data


def size_of(parts: Iterable[Buffer]) -> int:
    return sum(map(len, parts))


def tensor(name: str, values: npt.NDArray[np.generic]) -> list[Buffer]:
    """TensorProto, in parts: its numbers are large, and are copied when all is put together."""
    dims = b"".join(_number(1, size) for size in values.shape)
    little_endian = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    header = dims + _number(2, TYPES[values.dtype.name]) + _bytes(8, name) + _head(9, little_endian.nbytes)
    return [header, little_endian.reshape(-1).view(np.uint8).data]


def value(name: str, kind: str, shape: Sequence[int | str]) -> bytes:
    """ValueInfoProto; a name in `shape` is a size that may be any."""
    dims = (_bytes(2, size) if isinstance(size, str) else _number(1, size) for size in shape)
    axes = b"".join(_bytes(1, dim) for dim in dims)
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, TYPES[kind]) + _bytes(2, axes)))


def node(operator: str, inputs: Iterable[str], outputs: Iterable[str], attributes: dict[str, Attribute]) -> bytes:
    """NodeProto; a dot parts the domain of an operator from its name."""
    links = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in outputs)
    domain, _, name = operator.rpartition(".")
    settings = b"".join(_bytes(5, _attribute(*item)) for item in attributes.items())
    return links + _bytes(4, name) + settings + (_bytes(7, domain) if domain else b"")


def _attribute(name: str, setting: Attribute) -> bytes:
    """AttributeProto"""
    if isinstance(setting, int):
        content, kind = _number(3, setting), 2
    elif isinstance(setting, float):
        content, kind = _varint(2 << 3 | _FIXED32) + struct.pack("<f", setting), 1
    else:
        content, kind = b"".join(_number(8, item) for item in setting), 7
    return _bytes(1, name) + content + _number(20, kind)


def model(
    name: str,
    nodes: Iterable[bytes],
    tensors: Iterable[Sequence[Buffer]],
    inputs: Iterable[bytes],
    outputs: Iterable[bytes],
    *,
    opsets: Mapping[str, int],
    ir_version: int,
) -> bytes:
    """ModelProto; opsets: version of each domain of operators, ONNX's own being ''."""
    parts: list[Buffer] = [*(_bytes(1, item) for item in nodes), _bytes(2, name)]
    for item in tensors:
        parts += [_head(5, size_of(item)), *item]
    for field, items in ((11, inputs), (12, outputs)):
        parts += [_bytes(field, item) for item in items]
    versions = b"".join(_bytes(8, _bytes(1, domain) + _number(2, version)) for domain, version in opsets.items())
    head = _number(1, ir_version) + _bytes(2, "dtm-codec") + versions + _head(7, size_of(parts))
    return b"".join([head, *parts])
