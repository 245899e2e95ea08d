"""Twenty listeners at once, and a server that is killed in the middle: what was acknowledged is there, once."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from web_support import make_prepared

LISTENERS, TRIALS, STIMULI = 20, 40, 5
RATINGS = TRIALS * STIMULI
"""200 a listener."""


class Server:
    """`dtm-codec serve` as a process of its own, on one port over all its lives."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.command = [
            sys.executable, "-m", "dtm_codec", "serve", "--listening", str(folder), "--port", str(self.port),
        ]  # fmt: skip
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                httpx.get(f"{self.url}/api/listening", timeout=5).raise_for_status()
                return
            except httpx.HTTPError:
                assert self.process.poll() is None, "the server has stopped"
                time.sleep(0.1)
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

    def send(self, client: httpx.Client, method: str, path: str, **options: object) -> dict:
        while True:
            try:
                answer = client.request(method, self.server.url + path, **options)
            except httpx.HTTPError:
                time.sleep(0.1)  # the server is down: what was sent may or may not have arrived
                continue
            assert answer.status_code in (200, 201), answer.text
            return answer.json()

    def take(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(timeout=30) as client:
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


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_twenty_listeners_and_a_kill_lose_nothing_and_double_nothing(tmp_path: Path):
    noise = np.random.default_rng(0).standard_normal(12_000 + 4000 * TRIALS).astype(np.float32) / 10
    make_prepared(tmp_path, noise, utterances=TRIALS + 1)
    folder = tmp_path / "test"
    server = Server(folder)
    server.start()
    panel = Panel(server)
    with ThreadPoolExecutor(LISTENERS) as pool:
        tasks = [pool.submit(panel.take, seed) for seed in range(LISTENERS)]
        for share in (0.25, 0.6):
            while panel.count < share * LISTENERS * RATINGS:
                assert not any(task.done() and task.exception() for task in tasks)
                time.sleep(0.02)
            with panel.lock:  # no acknowledgement is noted while the server dies
                server.kill()
                acknowledged = sorted(panel.acknowledged.values())
                stored = stored_ratings(folder)
            missing = np.bincount(acknowledged, minlength=101) - np.bincount(stored, minlength=101)
            assert missing.max() <= 0, "an acknowledged rating is gone"
            assert len(stored) <= len(acknowledged) + LISTENERS, "at most the one that each was waiting for"
            server.start()
        for task in tasks:
            task.result()
    server.kill()
    assert panel.count == LISTENERS * RATINGS
    assert stored_ratings(folder) == sorted(panel.acknowledged.values())
    connection = sqlite3.connect(folder / "ratings.sqlite")
    per_listener = connection.execute("SELECT count(*), count(DISTINCT trial || system) FROM ratings GROUP BY listener")
    complete = [row for row in per_listener if row == (RATINGS, RATINGS)]
    connection.close()
    assert len(complete) == LISTENERS
