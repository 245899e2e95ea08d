"""Files are whole or not there, leftovers of the dead are removed and nothing of the living, a folder has one owner."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dtm_codec.system import files, locks
from dtm_codec.system.files import atomic_path, remove_leftovers, write_atomically
from dtm_codec.system.locks import LOCK_FILE, FolderInUseError, folder_in_use
from dtm_codec.system.terminal import printable

WRITER = """
import sys, time
from dtm_codec.system.files import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary.name, flush=True)
    time.sleep(600)
"""
OWNER = """
import os, sys, time
from dtm_codec.system.locks import folder_in_use
with folder_in_use(sys.argv[1]):
    if os.fork() == 0:
        print(os.getpid(), flush=True)  # by then, what a fork does to locks is done
    time.sleep(600)
"""


def start(code: str, *arguments: object) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that has written nothing yet."""
    monkeypatch.setattr(files, "_cleaned", set())


def test_leftovers_of_the_dead_are_removed_and_nothing_of_the_living(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, dead_name = start(WRITER, tmp_path / "a.bin")
    living, living_name = start(WRITER, tmp_path / "b.bin")
    try:
        kill(dead)
        (tmp_path / ".0123.bin").touch()  # somebody else's
        assert {dead_name, living_name, ".0123.bin"} == names(tmp_path)
        fresh(monkeypatch)
        write_atomically(tmp_path / "c.bin", b"whole")
        assert names(tmp_path) == {living_name, ".0123.bin", "c.bin"}
    finally:
        kill(living)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == {".0123.bin", "c.bin"}


def test_another_machines_files_are_given_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its locks may not be seen here."""
    monkeypatch.setattr(files, "_MACHINE", "0000")
    with atomic_path(tmp_path / "a.bin") as temporary:
        kept = temporary.with_name(temporary.name.replace(".0000", ".ffff"))
        kept.touch()
        old = kept.with_name(kept.name.replace(".ffff", ".fffe"))
        old.touch()
        os.utime(old, (time.time() - 25 * 3600,) * 2)
        remove_leftovers(tmp_path)
        assert names(tmp_path) == {temporary.name, kept.name}


def test_a_file_that_a_library_made_can_be_read_by_all_who_could_read_a_new_one(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with atomic_path(tmp_path / "a.bin") as temporary:
            own = temporary.with_name(".own")
            own.touch(0o600)
            own.replace(temporary)
        assert stat.S_IMODE((tmp_path / "a.bin").stat().st_mode) == 0o644
    finally:
        os.umask(before)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.bin", b"old")
    with suppress(ZeroDivisionError), atomic_path(tmp_path / "a.bin") as temporary:
        temporary.write_bytes(b"new")
        raise ZeroDivisionError
    assert (tmp_path / "a.bin").read_bytes() == b"old"
    assert names(tmp_path) == {"a.bin"}
    assert not locks._held


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_folder_has_one_owner_who_is_named_and_a_killed_one_has_none(tmp_path: Path) -> None:
    """Not even if a child that it forked lives on."""
    owner, child = start(OWNER, tmp_path / "run")
    try:
        with pytest.raises(FolderInUseError) as caught, folder_in_use(tmp_path / "run"):
            pytest.fail("two processes have the folder")
        assert f"in use by process {owner.pid} on {socket.gethostname()}" in str(caught.value)
        kill_parent_only = owner.kill
        kill_parent_only()
        owner.wait()
        assert (tmp_path / "run" / LOCK_FILE).exists()
        with folder_in_use(tmp_path / "run"):
            pass
        assert names(tmp_path / "run") == set()
    finally:
        os.kill(int(child), signal.SIGKILL)
        kill(owner)


def test_a_folder_is_free_again_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with suppress(ZeroDivisionError), folder_in_use(tmp_path):
            with pytest.raises(FolderInUseError), folder_in_use(tmp_path):
                pytest.fail("it is given twice in one process")
            raise ZeroDivisionError
    assert names(tmp_path) == set()


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
