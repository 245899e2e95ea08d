"""The command line where torch and numba are not installed: in processes in which importing them fails."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dtm_codec import DTMCodec, Encoded
from dtm_codec.speech.audio import audio_info, read_audio, sample_path
from dtm_codec.web.offline.onnxruntime_web import FILES, Pinned

Run = Callable[..., subprocess.CompletedProcess[str]]

HOOK = """
import sys

for name in ("torch", "numba"):
    sys.modules[name] = None  # as if it were not installed
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    paths = [str(hook), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dtm_codec", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return call


def test_torch_cannot_be_imported_there(environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", "import torch"]
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 1


def test_encode_decode_info_thin_and_show(run: Run, tmp_path: Path) -> None:
    shutil.copy(sample_path(), tmp_path / "speech.flac")
    for words in (
        ("encode", "speech.flac", "--bitrate", "800", "--nominal"),
        ("info", "speech.dtm"),
        ("decode", "speech.dtm"),
        ("thin", "speech.dtm", "--bitrate", "600"),
        ("show", "speech.flac", "--seconds", "1"),
    ):
        done = run(*words)
        assert done.returncode == 0, done.stderr
    in_bytes = DTMCodec.from_pretrained(backend="onnx-int8")
    speech, _ = read_audio(sample_path(), 16_000)
    one, other = in_bytes.encode(speech, 16_000, bitrate=800), in_bytes.load(tmp_path / "speech.dtm")
    assert np.sum(one.mask != other.mask) <= 2  # float ties
    assert np.abs(read_audio(tmp_path / "speech.decoded.wav")[0] - in_bytes.decode(other)).max() < 1e-3
    assert isinstance(other, Encoded)
    assert (tmp_path / "speech.png").stat().st_size > 1000


@pytest.mark.parametrize("engine", [("--workers", "1"), ("--ray", "local", "--workers", "1")])
def test_a_corpus_becomes_tokens_and_audio_again(
    run: Run, tmp_path: Path, engine: tuple[str, ...], environment: dict[str, str]
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    if "--ray" in engine:
        pytest.importorskip("ray.data")
        environment |= {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
        environment.pop("RAY_ADDRESS", None)
    (tmp_path / "audio").mkdir()
    shutil.copy(sample_path(), tmp_path / "audio" / "a.flac")
    done = run("tokenize", "audio", "-o", "tokens", *engine)
    assert done.returncode == 0, done.stderr
    metadata = json.loads((tmp_path / "tokens" / "metadata.json").read_text())
    assert metadata["counts"]["utterances"] == 1
    (codes,) = pq.read_table(*(tmp_path / "tokens").rglob("*.parquet"))["tokens"].to_pylist()
    speech, rate = read_audio(sample_path())
    in_torch = DTMCodec.from_pretrained(backend="torch").encode(speech, rate)
    assert len(codes) == in_torch.codes.size
    assert np.sum(in_torch.codes != codes) <= 1  # float ties; in 8 bits a third are others
    done = run("detokenize", "tokens", "-o", "back")
    assert done.returncode == 0, done.stderr
    assert audio_info(tmp_path / "back" / "a.wav").num_samples == audio_info(sample_path()).num_samples


def test_a_model_becomes_graphs(run: Run, tmp_path: Path) -> None:
    done = run("export", "small", "--onnx", "-o", "graphs")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "graphs" / "enc1.onnx").stat().st_size > 1e6


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """The files of onnxruntime-web, but for what is in them."""
    folder = tmp_path / "runtime"
    (folder / "dist").mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"version": Pinned.read().version}))
    for name in FILES:
        (folder / "dist" / name).write_bytes(b"a script")
    return folder


def test_the_page_is_written(run: Run, tmp_path: Path, runtime: Path) -> None:
    done = run("page", "-o", "page", "--runtime", str(runtime))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page" / "index.html").is_file()


@pytest.mark.parametrize(
    ("options", "path", "expected"),
    [((), "api/demo", '"counts":"written"'), (("--static", "--runtime", "runtime"), "page.json", '"sample_rate"')],
)
def test_the_demo_is_served(
    environment: dict[str, str],
    tmp_path: Path,
    runtime: Path,
    options: tuple[str, ...],
    path: str,
    expected: str,
) -> None:
    pytest.importorskip("fastapi")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dtm_codec", "serve", "--port", str(port), *options]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE) as server:
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
                        assert expected in answer.read().decode()
                    break
                except OSError:
                    assert server.poll() is None, server.stderr and server.stderr.read()
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (("encode", "speech.flac", "--effort", "1"), "torch"),
        (("encode", "speech.flac", "--backend", "torch"), "torch"),
        (("encode", "speech.flac", "--selector", "greedy"), "numba"),
        (("train", "x.yaml"), "torch"),
    ],
)
def test_what_needs_torch_names_the_extra(run: Run, tmp_path: Path, words: tuple[str, ...], package: str) -> None:
    shutil.copy(sample_path(), tmp_path / "speech.flac")
    done = run(*words)
    assert done.returncode == 2
    assert f"this needs the package '{package}': pip install 'dtm-codec[torch]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "speech.dtm").exists()


def test_the_python_interface(environment: dict[str, str]) -> None:
    code = """
import numpy as np
from dtm_codec import DTMCodec
codec = DTMCodec.from_pretrained()
assert codec.backend.name == "onnx-int8"
assert DTMCodec.from_pretrained(backend="onnx").backend.name == "onnx"
for call in (lambda: codec.network, lambda: DTMCodec.from_pretrained(backend="torch")):
    try:
        call()
    except Exception as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["this needs the package 'torch': pip install 'dtm-codec[torch]'"] * 2
