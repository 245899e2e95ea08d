"""`dtm-codec serve` and `page`: the demo, the listening test and the page that computes in the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from ..system.optional import import_optional
from . import options, terminal

if TYPE_CHECKING:
    from ..config import BackendName
    from ..web.demo import Demo, OtherCodec
    from ..web.guard import Guard

Runtime = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR|TGZ",
        help="onnxruntime-web as npm installed or packed it; without it, npm fetches it once.",
    ),
]

_OTHERS = {"codec2:700C": "c2enc", "codec2:1300": "c2enc", "opus:6": "opusenc"}
"""Codecs of like rates, and the program that each needs."""


def serve(
    host: Annotated[str, typer.Option(help="Address to bind to; the default is reachable from this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind to; 0 takes a free one.")] = 8000,
    model: Annotated[
        str | None,
        options.model_option(
            "The demo's model, for calls too (else 'small' and 'small-live'). With --listening, no demo without it."
        ),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Serve the page that computes in the browser: nothing is uploaded.")
    ] = False,
    runtime: Runtime = None,
    device: options.Device = "cpu",
    backend: options.Backend = None,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Another name to answer to on loopback, as a reverse proxy passes it on."),
    ] = None,
    listening: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Serve this prepared listening test as the first page.")
    ] = None,
    max_seconds: Annotated[
        float, typer.Option(min=1, max=600, metavar="S", help="Longest recording that the demo takes.")
    ] = 30.0,
    admin_token: Annotated[
        str | None,
        typer.Option(envvar="DTM_CODEC_ADMIN_TOKEN", help="Token of the results page; without it, a new one is made."),
    ] = None,
) -> None:
    """Serve the demo, or a listening test, to a browser on this machine."""
    import secrets
    from urllib.parse import quote

    import_optional("fastapi", "web")  # the pages import it at their top
    from ..web.app import create_app
    from ..web.guard import LOOPBACK_NAMES
    from ..web.listening.routes import RunningTest

    local = host in LOOPBACK_NAMES
    hosts = (*LOOPBACK_NAMES, *(name or ())) if local else None
    if static:
        if listening is not None:
            raise ConfigError("--static with --listening; allowed: one of them")
        from ..models.hub import DEFAULT_MODEL
        from ..web.offline.app import create_page_app
        from ..web.offline.folder import page_files

        with terminal.progress_bar("page"):
            page_app = create_page_app(page_files(model or DEFAULT_MODEL, runtime), hosts)
        _run(page_app, host, port, lambda url: [f"Page, computed in the browser: {url}/"], local)
        return
    if runtime is not None:
        raise ConfigError("--runtime without --static; allowed: both")
    running = RunningTest(listening) if listening is not None else None
    demo = _demo(model, device, backend, max_seconds) if model is not None or running is None else None
    token = admin_token or secrets.token_urlsafe(16)
    app = create_app(demo, running, token, hosts)

    def addresses(url: str) -> Iterator[str]:
        yield f"{'Listening test' if running else 'Demo'}: {url}/"
        if running and demo:
            yield f"Demo: {url}/demo"
        if running:
            yield f"Results: {url}/results#token={quote(token, safe='')}"

    _run(app, host, port, addresses, local)
    if running:
        running.store.close()


def _run(app: Guard, host: str, port: int, addresses: Callable[[str], Iterable[str]], local: bool) -> None:
    """Serve until interrupted. addresses: what to say once the URL is known"""
    import socket

    uvicorn = import_optional("uvicorn", "web")
    from ..web.connections import server_settings

    with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as bound:
        url = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
        for line in addresses(url):
            terminal.say(line)
        if not local:
            terminal.complain("This address can be reached from other machines.")
        uvicorn.Server(server_settings(app)).run(sockets=[bound])


def page(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.", show_default=False)],
    model: Annotated[str | None, options.model_option("The model that the page runs.")] = None,
    runtime: Runtime = None,
) -> None:
    """Write the page that encodes and decodes in the browser, as a folder that any web server can host."""
    from ..models.hub import DEFAULT_MODEL
    from ..web.offline.folder import page_files, write_folder

    with terminal.progress_bar("page"):
        size = write_folder(page_files(model or DEFAULT_MODEL, runtime), output)
    terminal.say(f"{output}: {size / 1e6:.1f} MB")
    terminal.say(f"Look at it: python -m http.server --directory {output}")


def _demo(model: str | None, device: str, backend: BackendName | None, max_seconds: float) -> Demo:
    import math

    from ..live.latency import latency_of
    from ..models import hub
    from ..web.demo import Demo

    loaded = hub.load(model or hub.DEFAULT_MODEL)
    is_live = math.isfinite(latency_of(loaded.config).total)  # streams need torch
    codec = options.load_codec(loaded, device, backend, in_torch=is_live)
    calls = model is None and find_spec("torch") is not None
    live = options.load_codec(hub.LIVE_MODEL, device, in_torch=True) if calls else None
    return Demo(codec, max_seconds, other_codecs(), live)


def other_codecs() -> dict[str, OtherCodec]:
    """Codecs to compare with on the demo page, as far as their programs are installed."""
    import shutil

    from ..evaluation.systems import build
    from ..evaluation.systems.base import System
    from ..metrics.base import SAMPLE_RATE
    from ..speech.audio import Samples, resample
    from ..web.demo import Heard, OtherCodec

    def round_trip(system: System, audio: Samples, sample_rate: int) -> Heard:
        coded = system.encode(resample(audio, sample_rate, SAMPLE_RATE))
        decoded = resample(system.decode(coded), SAMPLE_RATE, sample_rate)
        assert coded.bits is not None  # these count what they send
        return Heard(decoded[: audio.size], coded.bits.total)

    names = [name for name, program in _OTHERS.items() if shutil.which(program)]
    systems = {name: build(name, "cpu") for name in names}
    return {name: OtherCodec(system.title, partial(round_trip, system)) for name, system in systems.items()}
