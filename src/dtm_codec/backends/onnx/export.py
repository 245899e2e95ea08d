"""A model as a folder of ONNX files, for a browser or any other runtime (docs/onnx.md)."""

from __future__ import annotations

import math
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors.numpy

from ...config import STACKS, config_values
from ...errors import ModelError
from ...models.hub import CONFIG_FILE, LoadedModel
from ...models.weights import TAU
from ...system.files import json_bytes, write_atomically
from .graph import IR_VERSION, OPSET, Graph, Port, Precision
from .graphs import build_graph, check_has_graphs, graph_names

GRAPHS_FILE, TOKEN_MODEL_FILE = "graphs.json", "token_model.safetensors"
FORMAT = 1
"""Of `graphs.json`; it changes when a reader of the old one would go wrong."""


def export_graphs(model: LoadedModel, folder: str | PathLike[str], precision: Precision = "fp32") -> dict[str, int]:
    """Write graphs, configuration and token statistics; returns the bytes of each file."""
    if model.tensors is None:
        raise ModelError(f"{model.origin!r} has no weights; allowed: a trained model")
    check_has_graphs(model.config)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    sizes, described = {}, {}

    def write(name: str, data: bytes) -> None:
        write_atomically(path / name, data)
        sizes[name] = len(data)

    for name in graph_names(model.config):
        graph = build_graph(name, model.config, model.tensors, precision)
        write(f"{name}.onnx", graph.to_bytes())
        described[name] = _described(graph)
    if model.token_model is not None:
        write(TOKEN_MODEL_FILE, safetensors.numpy.save(model.token_model.to_arrays()))
    write(CONFIG_FILE, json_bytes(config_values(model.config, model.bitrates)))
    tau = float(model.tensors[TAU])
    about = {
        "format": FORMAT,
        "model_id": model.model_id,
        "precision": precision,
        "opset": OPSET,
        "ir_version": IR_VERSION,
        "tau": None if math.isnan(tau) else tau,
        "reach": {stack: model.config.reach(stack) for stack in STACKS},
        "token_model": None if model.token_model is None else TOKEN_MODEL_FILE,
        "graphs": described,
    }
    write(GRAPHS_FILE, json_bytes(about))  # last: with it, all is there
    return sizes


def _described(graph: Graph) -> dict[str, Any]:
    def ports(of: list[Port]) -> list[dict[str, Any]]:
        return [asdict(port) for port in of]

    return {"file": f"{graph.name}.onnx", "inputs": ports(graph.inputs), "outputs": ports(graph.outputs)}
