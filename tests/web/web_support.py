"""A small prepared listening test, and a server that is up while a block lasts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from dtm_codec.speech.audio import Samples, write_audio
from dtm_codec.web.connections import server_settings
from dtm_codec.web.guard import Guard
from dtm_codec.web.listening.definition import Definition
from dtm_codec.web.listening.prepared import ListeningTest, prepare

ADMIN = "only-for-tests"


def worse(audio: Samples, noise: float) -> Samples:
    """Speech with noise that follows it."""
    return audio + (noise * np.abs(audio) * np.random.default_rng(0).standard_normal(audio.size)).astype(np.float32)


SYSTEMS = {"good <i>&": 0.05, "middling": 0.4, "poor": 1.5}
"""Names that must not be read as HTML, and how noisy each system is."""


def make_prepared(
    folder: Path, speech: Samples, utterances: int = 4, trials: int | None = None, **options: Any
) -> ListeningTest:
    """options: further fields of the definition."""
    originals = folder / "originals"
    originals.mkdir(parents=True)
    for i in range(utterances):
        write_audio(originals / f"utt{i}.wav", speech[4000 * i :][:12_000], 16_000)

    def systems(source: str) -> Callable[[Samples, int], tuple[Samples, int]]:
        return lambda audio, rate: (worse(audio, float(source)), rate)

    sources = {name: str(noise) for name, noise in SYSTEMS.items()}
    definition = Definition(str(originals), sources, "A <b>test</b>", seed=3, trials_per_listener=trials, **options)
    return prepare(definition, folder / "test", systems)


@contextmanager
def served(app: Guard, buffer: int | None = None) -> Iterator[str]:
    """A real server on a free port, for as long as the block lasts. buffer: bytes that its connections hold"""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF) if buffer else ():
            bound.setsockopt(socket.SOL_SOCKET, kind, buffer)
        server = uvicorn.Server(server_settings(app, "error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=10)
