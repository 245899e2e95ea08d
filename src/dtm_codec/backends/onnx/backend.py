"""The network in onnxruntime, as `DTMCodec` speaks to it. A graph is built and loaded when it is first used: who only
decodes never waits for the encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...config import CodecConfig, Stack
from ...errors import ModelError, OutOfMemoryError
from ...models.weights import TAU, Array
from ...selectors import Selector, build
from ...system.memory import memory_errors
from ...system.optional import import_optional
from ...system.threads import asked_threads, available_cores
from ..base import PIECE, Codes, Floats, Mask, Positions, Pulses
from .graph import Precision
from .graphs import build_graph, check_has_graphs, codebook

PRECISIONS: dict[str, Precision] = {"onnx": "fp32", "onnx-int8": "int8"}
"""Of the backends of these names."""


class OnnxBackend:
    piece = PIECE
    whole_segments = False

    def __init__(self, config: CodecConfig, tensors: dict[str, Array], name: str = "onnx") -> None:
        check_has_graphs(config)
        import_optional("onnxruntime")
        self.name, self.config, self.selector = name, config, build(config.selector)
        self._tensors, self._precision, self._changes = tensors, PRECISIONS[name], 0
        self.threads = asked_threads() or available_cores()
        self._sessions: dict[str, Any] = {}

    @property
    def tau(self) -> float:
        return float(self._tensors[TAU])

    def use_selector(self, config: CodecConfig, selector: Selector) -> None:
        self.config, self.selector = config, selector
        self._tensors = self._tensors | {TAU: np.array(np.nan)}
        self._changes += 1

    def front_end(self, frames: Floats) -> Floats:
        return self._run("front_end", frames=frames)

    def log_mel(self, frames: Floats) -> Floats:
        return self._run("log_mel", frames=frames)

    def stack(self, name: Stack, x: Floats, positions: Positions) -> Floats:
        return self._run(name, x=x, positions=positions)

    def downsample(self, z1: Floats, mask: Mask) -> Floats:
        return z1[mask]

    def quantize(self, z2: Floats) -> Codes:
        return self._run("quantize", z2=z2)

    def dequantize(self, codes: Codes) -> Floats:
        return self._run("dequantize", codes=codes)

    def upsample(self, h: Floats, mask: Mask) -> Floats:
        return self._run("upsample", h=h, mask=mask)

    def pitch(self, y: Floats) -> npt.NDArray[np.float64] | None:
        return self._run("pitch", y=y) if self.config.head == "source-filter" else None

    def head(self, y: Floats, positions: Positions, pulses: Pulses | None) -> Floats:
        if pulses is None:
            return self._run("head", y=y)
        return self._run("head", y=y, positions=positions, **pulses._asdict())

    def vectors(self) -> Floats:
        return codebook(self._tensors)

    def weights(self) -> dict[str, Array]:
        return self._tensors

    def version(self) -> Any:
        return self._changes

    def to(self, device: str) -> None:
        if str(device) != "cpu":
            raise ModelError(f"device = {device!r} with backend {self.name!r}; allowed: 'cpu'")

    def use_threads(self, threads: int) -> None:
        if threads != self.threads:
            self.threads = threads
            self._sessions.clear()

    def _run(self, name: str, **inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if name not in self._sessions:
            self._sessions[name] = self._session(name)
        result: npt.NDArray[Any] = self._sessions[name].run(None, inputs)[0]
        return result

    def _session(self, name: str) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 4  # errors are raised, and need not be printed too
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads sleep
        options.enable_mem_reuse = False  # its plan takes half of the time to load, and saves neither memory nor time
        graph = build_graph(name, self.config, self._tensors, self._precision)
        try:
            with memory_errors():
                return onnxruntime.InferenceSession(graph.to_bytes(), options, providers=["CPUExecutionProvider"])
        except OutOfMemoryError:
            raise
        except Exception as error:  # its exceptions have no common base
            reason = str(error).partition("\n")[0][:200]
            raise ModelError(f"onnxruntime {onnxruntime.__version__} cannot load {name!r}: {reason}") from error
