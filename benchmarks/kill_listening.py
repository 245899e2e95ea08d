"""The server of a listening test, killed while listeners rate (benchmarks/kill_tests.py)."""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dtm_codec.speech.audio import Samples, write_audio
from dtm_codec.web.listening.definition import Definition
from dtm_codec.web.listening.prepared import prepare

LISTENERS, SYSTEMS = 4, {"good": 0.05, "middling": 0.4, "poor": 1.5}
STIMULI = len(SYSTEMS) + 2
RATE = 16_000


class Server:
    """`dtm-codec serve` as a process of its own, on one port over all its lives."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.command = [
            sys.executable, "-m", "dtm_codec", "serve", "--listening", str(folder), "--port", str(self.port),
        ]  # fmt: skip
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self, patience_s: float = 300.0) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            try:
                httpx.get(f"{self.url}/api/listening", timeout=5).raise_for_status()
                return
            except httpx.HTTPError:
                assert self.process.poll() is None, "the server has stopped"
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Panel:
    """Listeners who send every rating until it is acknowledged, and some of them twice."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.acknowledged: dict[str, int] = {}
        """By alias: the rating that the server said it has."""
        self.lock = threading.Lock()

    def send(self, client: httpx.Client, method: str, path: str, **options: Any) -> dict[str, Any]:
        while True:
            try:
                answer = client.request(method, self.server.url + path, **options)
            except httpx.HTTPError:
                time.sleep(0.05)  # the server is down: what was sent may or may not have arrived
                continue
            assert answer.status_code in (200, 201), answer.text
            found: dict[str, Any] = answer.json()
            return found

    def take(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(timeout=60) as client:
            state = self.send(client, "POST", "/api/listening/listeners", json={"name": f"listener {seed}"})
            client.headers["X-Listener-Token"] = state["token"]
            while trial := state["trial"]:
                for stimulus in trial["stimuli"]:
                    for rating in rng.integers(0, 101, size=1 + (rng.random() < 0.1)).tolist():
                        body = {"stimulus": stimulus["id"], "rating": rating}
                        stored = self.send(client, "POST", "/api/listening/ratings", json=body)
                        with self.lock:
                            assert self.acknowledged.setdefault(stimulus["id"], stored["rating"]) == stored["rating"]
                state = self.send(client, "GET", "/api/listening/session")

    @property
    def count(self) -> int:
        with self.lock:
            return len(self.acknowledged)


def stored_ratings(folder: Path) -> list[int]:
    connection = sqlite3.connect(folder / "ratings.sqlite")
    rows = [row[0] for row in connection.execute("SELECT rating FROM ratings")]
    connection.close()
    return sorted(rows)


def nothing_acknowledged_is_lost(folder: Path, acknowledged: list[int], listeners: int) -> None:
    stored = stored_ratings(folder)
    missing = np.bincount(acknowledged, minlength=101) - np.bincount(stored, minlength=101)
    assert missing.max() <= 0, "an acknowledged rating is gone"
    assert len(stored) <= len(acknowledged) + listeners, "at most the one that each was waiting for"


def kill_server(folder: Path, kills: int) -> tuple[int, int]:
    """How many kills there were, and how many ratings at the end. Each listener rates all, and the server is killed
    after a random number of ratings, each time."""
    trials = max(4, -(-kills * 8 // (LISTENERS * STIMULI)))
    noise = np.random.default_rng(0).standard_normal(RATE + 100 * trials).astype(np.float32) / 10
    (folder / "originals").mkdir()
    for number in range(trials + 1):
        write_audio(folder / "originals" / f"utt{number}.wav", noise[100 * number :][: RATE * 3 // 4], RATE)

    def system(source: str) -> Any:
        return lambda audio, rate: (worse(audio, float(source)), rate)

    sources = {name: str(level) for name, level in SYSTEMS.items()}
    prepare(Definition(str(folder / "originals"), sources), folder / "test", system)
    server, draw, done = Server(folder / "test"), random.Random(0), 0
    total = LISTENERS * trials * STIMULI
    server.start()
    panel = Panel(server)
    with ThreadPoolExecutor(LISTENERS) as pool:
        tasks = [pool.submit(panel.take, seed) for seed in range(LISTENERS)]
        for kill in range(kills):
            target = panel.count + draw.randint(1, max(1, 2 * (total - panel.count) // (kills - kill) - 1))
            while panel.count < min(target, total - 1):
                assert not any(task.done() and task.exception() for task in tasks)
                time.sleep(0.002)
            with panel.lock:  # no acknowledgement is noted while the server dies
                server.kill()
                done += 1
                nothing_acknowledged_is_lost(folder / "test", list(panel.acknowledged.values()), LISTENERS)
            server.start()
        for task in tasks:
            task.result()
    server.process.terminate()
    server.process.wait()
    assert panel.count == total
    assert stored_ratings(folder / "test") == sorted(panel.acknowledged.values())
    left = [path.name for path in (folder / "test").iterdir()]
    assert sorted(left) == ["audio", "ratings.sqlite", "test.json"], left
    return done, total


def worse(audio: Samples, noise: float) -> Samples:
    return audio + (noise * np.abs(audio) * np.random.default_rng(0).standard_normal(audio.size)).astype(np.float32)
