"""The page as a set of files: what any web server can host, and `dtm-codec serve --static` serves.

index.html, page.json, service-worker.js, sample.flac
static/     the demo's page with another engine, and the codec in JavaScript
model/      ONNX graphs, as `dtm-codec export MODEL --onnx` writes them
runtime/    onnxruntime-web
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import browser
from ...backends.onnx.export import export_graphs
from ...config import CodecConfig
from ...errors import ConfigError, ModelError
from ...models import hub
from ...models.weights import num_parameters
from ...speech.audio import sample_path
from ...system.files import write_atomically
from ..rates import rate_range
from .onnxruntime_web import runtime_files

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

INDEX, ABOUT = "index.html", "page.json"

MAX_SECONDS = 600
"""Longest recording that the page takes. z1 and what is decoded from it are held, 2 kB a step."""

BLOCK, PIECE = 1024, 4096
"""Steps that front end and head see at a time, and that a stack answers: they bound what is computed on the way."""

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; media-src 'self' blob:; base-uri 'none'; form-action 'none'"
)
"""The browser itself refuses to send anything elsewhere."""

_SHARED = ("demo.js", "recorder.js", "common.js", "figures.js", "wav.js", "style.css", "demo.css", "favicon.svg")
"""Of the demo that a server computes for."""

Files = dict[str, bytes]
"""By path inside the folder."""


def page_files(model: str, runtime: Path | None = None) -> Files:
    """Everything the page needs. model: as for `hub.load`; runtime: as for `runtime_files`"""
    loaded = hub.load(model)
    _check_selector(loaded.config)
    files = {f"runtime/{name}": data for name, data in runtime_files(runtime).items()}
    with tempfile.TemporaryDirectory() as folder:
        export_graphs(loaded, folder, "fp16")
        files |= {f"model/{path.name}": path.read_bytes() for path in sorted(Path(folder).iterdir())}
    files |= _scripts()
    files["sample.flac"] = sample_path().read_bytes()
    about = {
        "model_id": loaded.model_id,
        "parameters": num_parameters(loaded.config),
        "sample_rate": loaded.config.sample_rate,
        "frame_rate": loaded.config.frame_rate,
        "fixed_rate": False,
        "bitrate": vars(rate_range(loaded.config)),
        "counts": "nominal",
        "trained": loaded.bitrates,
        "max_seconds": MAX_SECONDS,
        "block": BLOCK,
        "piece": PIECE,
    }
    return files | _listed(files, about)


def _check_selector(config: CodecConfig) -> None:
    selector = config.selector
    if (selector.name, selector.features, selector.distance) != ("ple", "z1", "cosine"):
        raise ModelError(
            f"selector {selector.name!r} on {selector.features} with distance {selector.distance!r}; "
            "allowed in the browser: 'ple' on z1 with 'cosine'"
        )


def _scripts() -> Files:
    """The demo's page, with the policy inside and the engine that computes here."""
    web = resources.files(__package__.rpartition(".")[0])
    page, demo = web.joinpath("offline", "page"), web.joinpath("static")
    charset = '<meta charset="utf-8">'
    html = demo.joinpath("demo.html").read_text(encoding="utf-8")
    assert charset in html
    policy = f'{charset}\n  <meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    entries: list[Traversable] = [demo.joinpath(name) for name in _SHARED]
    files = {f"static/{entry.name}": entry.read_bytes() for entry in [*entries, *browser.scripts()]}
    files |= {f"static/{name}": page.joinpath(name).read_bytes() for name in ("engine.js", "worker.js")}
    files |= {f"static/codec/{entry.name}": entry.read_bytes() for entry in page.joinpath("codec").iterdir()}
    files["service-worker.js"] = page.joinpath("service-worker.js").read_bytes()
    files[INDEX] = html.replace(charset, policy).encode()
    return files


def _listed(files: Files, about: dict[str, Any]) -> Files:
    """`page.json`, and the service worker with its version: browsers look for a new page only if its bytes changed."""
    listed = {
        path: {"bytes": len(data), "hash": hashlib.sha256(data).hexdigest()[:16]}
        for path, data in sorted(files.items())
    }
    version = hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]
    return {
        "service-worker.js": files["service-worker.js"] + f"// version {version}\n".encode(),
        ABOUT: (json.dumps(about | {"version": version, "files": listed}, indent=1) + "\n").encode(),
    }


def write_folder(files: Files, folder: Path) -> int:
    """Write the page; returns its bytes. What else lies in the folder stays, as a host's own files may."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; allowed: a folder")
    if (folder / INDEX).exists() and not (folder / ABOUT).exists():
        raise ConfigError(f"{folder} has an {INDEX} of something else; allowed: a new folder, or an older page's")
    for path in sorted(files, key=lambda path: path in (INDEX, ABOUT)):  # the page itself last: then all is there
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, files[path])
    return sum(map(len, files.values()))
