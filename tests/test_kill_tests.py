"""Runs that are killed lose nothing and leave nothing: a few rounds of `make kill-tests`.

The corpus and the listening test have kills of their own, in tests/corpus and tests/web.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "kill_tests.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("loop", "needed"), [("encode", "onnxruntime"), ("training", "lightning_fabric"), ("evaluate", "pyarrow")]
)
def test_killed_runs_lose_nothing_and_leave_nothing(loop: str, needed: str) -> None:
    pytest.importorskip(needed)
    run = [sys.executable, str(SCRIPT), loop, "--kills", "3"]
    done = subprocess.run(run, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"| {loop} | 3 |" in done.stdout
