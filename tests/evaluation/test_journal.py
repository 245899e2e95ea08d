"""The journal: nothing lost, nothing twice, nothing stale."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.errors import DTMCodecError
from dtm_codec.evaluation.journal import Header, Journal, Result
from dtm_codec.metrics.base import Score

HEADER = Header({"a": "a1", "b": "b1"}, {"pesq": "p1", "wer": "w1"})


def result(system: str, utterance: str, *names: str) -> Result:
    scores = {name: Score(1.5, 2.0, "heard") if name == "wer" else None for name in names}
    return Result(system, utterance, 1.0, 10, 2, 11, scores)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=6))
def test_whole_lines_survive_a_cut_at_any_byte(tmp_path_factory, cut: int, entries: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    journal = Journal(path, HEADER)
    for system, utterance in entries:
        journal.add(result(system, utterance, "pesq", "wer"))
    journal.close()
    data = path.read_bytes()[:cut]
    path.write_bytes(data)
    whole = [line for line in data.split(b"\n")[:-1] if b'"header"' not in line]
    again = Journal(path, HEADER)
    again.add(result("a", "new", "pesq"))
    again.close()
    last = Journal(path, HEADER)
    last.close()
    expected = dict.fromkeys(entries[: len(whole)]) | {("a", "new"): None}
    assert set(last.results) == set(expected)


def test_scores_come_back_as_they_were(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", HEADER)
    journal.add(result("a", "x", "pesq", "wer"))
    journal.close()
    back = Journal(tmp_path / "j", HEADER).results["a", "x"]
    assert back == result("a", "x", "pesq", "wer")


def test_only_missing_metrics_are_asked_for(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", HEADER)
    assert journal.missing("a", "x") == ["pesq", "wer"]
    journal.add(result("a", "x", "pesq"))
    assert journal.missing("a", "x") == ["wer"]
    journal.add(result("a", "x", "wer"))
    assert journal.missing("a", "x") == []
    assert journal.missing("b", "x") == ["pesq", "wer"]


def test_a_new_model_or_judge_under_an_old_name_is_done_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", HEADER)
    for system in "ab":
        journal.add(result(system, "x", "pesq", "wer"))
    journal.close()
    retrained = Journal(tmp_path / "j", Header({"a": "a2", "b": "b1"}, {"pesq": "p1", "wer": "w2"}))
    assert retrained.missing("a", "x") == ["pesq", "wer"]
    assert retrained.missing("b", "x") == ["wer"]
    retrained.close()
    assert Journal(tmp_path / "j", HEADER).missing("a", "x") == []  # the old one is still known


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", HEADER)
    journal.add(Result("a", "x", error="the program crashed"))
    assert journal.missing("a", "x") == ["pesq", "wer"]


def test_two_runs_do_not_write_one_journal(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    first = Journal(tmp_path / "j", HEADER)
    with pytest.raises(DTMCodecError, match="another run"):
        Journal(tmp_path / "j", HEADER)
    first.close()
    Journal(tmp_path / "j", HEADER).close()
