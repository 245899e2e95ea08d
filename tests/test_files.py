"""Files are whole or not there, whoever is killed, and however many write at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dtm_codec.files import atomic_path, printable, remove_leftovers, write_atomically

WRITER = """
import sys
from pathlib import Path
from dtm_codec.files import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_bytes(b"half")
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_atomically(tmp_path / "x", b"old")

    def fail() -> None:
        with atomic_path(tmp_path / "x") as temporary:
            temporary.write_bytes(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"old"}


def test_a_killed_writers_file_is_cleaned_up_and_a_living_ones_is_not(tmp_path: Path) -> None:
    killed, living = (
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in ("a.dtm", "b.dtm")
    )
    for process in (killed, living):
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
    (tmp_path / ".0123456789abcdef.txt").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".hidden.dtm").write_bytes(b"somebody's")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(list(tmp_path.glob(".*.dtm"))) == 3
    remove_leftovers(tmp_path)
    assert len(list(tmp_path.glob(".*.dtm"))) == 2  # of the one that is still writing, and what is not ours
    living.communicate(b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".0123456789abcdef.txt", ".hidden.dtm", "b.dtm"]


def _claim(path: Path, number: int, ready: object, wins: object) -> None:
    with atomic_path(path, overwrite=False) as temporary:
        temporary.write_text(str(number))
        ready.wait()  # type: ignore[attr-defined]
    wins.put(number)  # type: ignore[attr-defined]


@pytest.mark.parametrize("links", [True, False])
def test_of_several_writers_of_a_new_file_one_succeeds(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:

        def refuse(*names: object) -> None:
            raise PermissionError(1, "no hard links here")

        monkeypatch.setattr(os, "link", refuse)
    context = multiprocessing.get_context("fork")
    ready, wins = context.Barrier(4), context.Queue()
    writers = [context.Process(target=_claim, args=(tmp_path / "x", i, ready, wins)) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(writer.exitcode for writer in writers) == [0, 1, 1, 1]
    assert (tmp_path / "x").read_text() == str(wins.get())
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_what_would_steer_a_terminal_is_written_out() -> None:
    assert printable("a\x1b[31mb\rc\u202ed\udcff ä 音") == "a\\x1b[31mb\\rc\\u202ed\\udcff ä 音"
