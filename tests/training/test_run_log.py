"""The bar of a run says step and time left on a terminal of any width."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console
from rich.progress import Progress

from dtm_codec.training.deadline import MARGIN, Deadline
from dtm_codec.training.logs import progress_columns

STATUS = "x real time 3.12  mel 0.931  vq 0.0123  adv 1.23  fm 4.56  keep 0.502  tau 0.123  codes 0.45"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_step_and_time_left_are_seen_at_any_width(width: int) -> None:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    progress = Progress(*progress_columns(), console=console)
    end = time.monotonic() + 7384
    progress.add_task("step", total=600_000, completed=123_456, status=STATUS, deadline=end)
    with console.capture() as captured:
        console.print(progress.get_renderable())
    (line,) = captured.get().splitlines()
    assert re.search(r"step 123456/600000 .* 2:03:0[34] x real time", line)
    assert (STATUS in line) == (width == 200)


def test_the_end_of_a_timed_run_is_given_the_time_it_took_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadline = Deadline(10)
    assert deadline.statistics_s == 30
    for seconds in (20.0, 8.0):  # the first step takes longer
        with deadline.measured("step"):
            now += seconds
    with deadline.measured("save"):
        now += 10
    with deadline.measured("scores", times=4):
        now += 5
    assert deadline.needs("step") == MARGIN * 14
    assert deadline.needs() == MARGIN * (14 + 10 + 20)
    now = 600 - 30 - MARGIN * 44 - 0.1
    assert not deadline.is_near()
    now += 0.2
    assert deadline.is_near()


def test_without_a_limit_the_end_is_never_near() -> None:
    deadline = Deadline(float("inf"))
    with deadline.measured("step", times=10**9):
        pass
    assert not deadline.is_near()
