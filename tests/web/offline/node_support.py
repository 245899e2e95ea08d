"""The page's scripts in Node, called from Python; tests skip where there is no Node."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dtm_codec.encoded import Encoded
from dtm_codec.layout import Layout

SCRIPTS = Path(str(resources.files("dtm_codec.web.offline"))) / "page"
LAYOUT_FIELDS = {
    "sampleRate": "sample_rate",
    "hopLength": "hop_length",
    "tokenBits": "token_bits",
    "stride": "stride",
}


class ScriptError(Exception):
    """What a script threw: the name of its class, and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Node:
    """One process that answers call after call."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def call(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "Node stopped; its messages are on standard error"
        answer = json.loads(line)
        if "error" in answer:
            raise ScriptError(answer["error"], answer["message"])
        return answer["value"]

    def read(self, data: bytes, statistics: str | None = None, max_seconds: float = 0) -> Encoded:
        found = self.call("read", text(data), statistics, max_seconds)
        layout = Layout(**{name: found["layout"][field] for field, name in LAYOUT_FIELDS.items()})
        mask = np.array([bit == "1" for bit in found["mask"]])
        return Encoded(np.array(found["codes"]), mask, found["numSamples"], found["modelId"], layout)

    def write(self, encoded: Encoded, mode: str, statistics: str | None = None) -> bytes:
        utterance = {
            "codes": encoded.codes.tolist(),
            "mask": "".join(str(int(kept)) for kept in encoded.mask),
            "numSamples": encoded.num_samples,
            "modelId": encoded.model_id,
            "layout": layout_json(encoded.layout),
        }
        return base64.b64decode(self.call("write", utterance, mode, statistics))


def layout_json(layout: Layout) -> dict[str, int | None]:
    return {field: getattr(layout, name) for field, name in LAYOUT_FIELDS.items()}


def text(data: bytes | npt.NDArray[np.float32]) -> str:
    return base64.b64encode(data if isinstance(data, bytes) else data.astype("<f4").tobytes()).decode()


def floats(answer: str) -> npt.NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(answer), "<f4")


@contextmanager
def running_node() -> Iterator[Node]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("needs node")
    command = [program, str(Path(__file__).with_name("node_driver.mjs")), str(SCRIPTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Node(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
