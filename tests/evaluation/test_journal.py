"""The journal: nothing lost, nothing twice, nothing stale."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dtm_codec.errors import DTMCodecError
from dtm_codec.evaluation.journal import Journal, JournalError, JudgedUtterance
from dtm_codec.metrics.base import Score

SYSTEMS, JUDGES = {"a": "a1", "b": "b1"}, {"pesq": "p1", "wer": "w1"}

WRITER = """
import sys
from pathlib import Path
from dtm_codec.evaluation.journal import Journal, JudgedUtterance
from dtm_codec.metrics.base import Score

journal = Journal(Path(sys.argv[1]), {"a": "a1", "b": "b1"}, {"pesq": "p1", "wer": "w1"})
for number in range(100_000):
    journal.add(JudgedUtterance("a", str(number), 1.0, 10, 2, 11, scores={"pesq": Score(1.5), "wer": None}))
    print(number, flush=True)
"""


def open_journal(folder: Path) -> Journal:
    return Journal(folder / "j", SYSTEMS, JUDGES)


def result(system: str, utterance: str, *names: str) -> JudgedUtterance:
    scores = {name: Score(1.5, 2.0, "heard") if name == "wer" else None for name in names}
    return JudgedUtterance(system, utterance, 1.0, 10, 2, 11, scores=scores)


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_what_was_added_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    for stop_after in (1, 7, 40):
        before = len(open_and_close(tmp_path))
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "j")], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(stop_after):
                added = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            added += len(writer.stdout.readlines())
        kept = open_and_close(tmp_path)
        assert added + 1 <= len(kept) <= max(before, added + 2)  # one more may be on disk than was told
        assert all(r.scores == {"pesq": Score(1.5), "wer": None} for r in kept.values())


def open_and_close(folder: Path) -> dict[tuple[str, str], JudgedUtterance]:
    journal = open_journal(folder)
    journal.close()
    return journal.results


def test_scores_come_back_as_they_were(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.add(result("a", "x", "pesq", "wer"))
    journal.close()
    assert open_journal(tmp_path).results["a", "x"] == result("a", "x", "pesq", "wer")


def test_only_missing_metrics_are_asked_for(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    assert journal.missing("a", "x") == ["pesq", "wer"]
    journal.add(result("a", "x", "pesq"))
    assert journal.missing("a", "x") == ["wer"]
    journal.add(result("a", "x", "wer"))
    assert journal.missing("a", "x") == []
    assert journal.missing("b", "x") == ["pesq", "wer"]
    journal.close()
    assert open_journal(tmp_path).missing("a", "x") == []


def test_a_new_model_or_judge_under_an_old_name_is_done_anew(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    for system in "ab":
        journal.add(result(system, "x", "pesq", "wer"))
    journal.close()
    retrained = Journal(tmp_path / "j", {"a": "a2", "b": "b1"}, {"pesq": "p1", "wer": "w2"})
    assert retrained.missing("a", "x") == ["pesq", "wer"]
    assert retrained.missing("b", "x") == ["wer"]
    retrained.add(result("a", "x", "pesq", "wer"))
    retrained.close()
    assert open_journal(tmp_path).missing("a", "x") == []  # the old one is still known


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.add(JudgedUtterance("a", "x", error="the program crashed"))
    assert journal.missing("a", "x") == ["pesq", "wer"]
    journal.close()
    again = open_journal(tmp_path)
    assert again.results["a", "x"].error == "the program crashed"
    assert again.missing("a", "x") == ["pesq", "wer"]


def test_two_runs_do_not_write_one_journal(tmp_path: Path) -> None:
    first = open_journal(tmp_path)
    with pytest.raises(DTMCodecError, match="another run"):
        open_journal(tmp_path)
    first.close()
    open_journal(tmp_path).close()


def test_a_journal_that_cannot_be_written_is_not_called_in_use(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="nowhere/j cannot be written"):
        open_journal(tmp_path / "nowhere")
    journal = open_journal(tmp_path)
    journal._database.execute("PRAGMA max_page_count = 1")  # as a full disk
    large = JudgedUtterance("a", "x", error="no " * 100_000)
    with pytest.raises(JournalError, match=r"j cannot be written .* full"):
        journal.add(large)
    journal.close()


def test_another_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("notes " * 1000)
    with pytest.raises(DTMCodecError, match="no journal of a run"):
        open_journal(tmp_path)
    assert (tmp_path / "j").read_text() == "notes " * 1000
