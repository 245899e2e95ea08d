"""Twenty listeners at once, and a server that is killed in the middle: what was acknowledged is there, once."""

from __future__ import annotations

import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from kill_listening import Panel, Server, nothing_acknowledged_is_lost, stored_ratings
from web_support import make_prepared

LISTENERS, TRIALS, STIMULI = 20, 40, 5
RATINGS = TRIALS * STIMULI
"""200 a listener."""


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
                nothing_acknowledged_is_lost(folder, list(panel.acknowledged.values()), LISTENERS)
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
