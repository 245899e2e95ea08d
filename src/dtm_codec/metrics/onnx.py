"""Judges that are ONNX graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..system.optional import import_optional


def one_thread_session(judge: str, path: Path) -> Any:
    """A session that leaves the other cores to other jobs; by default one takes them all."""
    runtime = import_optional("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base
        raise ModelError(f"{judge}: cannot load {path} ({error})") from None
