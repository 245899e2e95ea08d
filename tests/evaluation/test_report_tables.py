"""Tables and reports: one judge to a column, everything shown, nothing fetched."""

from __future__ import annotations

import dataclasses
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dtm_codec.evaluation import figures, paper
from dtm_codec.evaluation.document import Report, Section
from dtm_codec.evaluation.html_report import html_table
from dtm_codec.evaluation.rendering import latex_table, markdown_table, write
from dtm_codec.evaluation.report import compared, make_report, run_block
from dtm_codec.evaluation.summary import Bps, JudgedEstimate, MetricInfo, Summary, SystemSummary
from dtm_codec.evaluation.tables import Block, Cell, Column, Entry, Group, systems_block


def summary(judge: str, names: tuple[str, ...] = ("a", "b"), mean: float = 2.0) -> Summary:
    """A run with one metric of that judge."""
    systems = {}
    for index, name in enumerate(names):
        estimate = JudgedEstimate(mean + index, mean + index - 0.5, mean + index + 0.5, 5, judge)
        bps = Bps(700 * (index + 1), 100, 700 * (index + 1) + 100, 750)
        systems[name] = SystemSummary(f"System {name}", name, "1", None, 5, 10.0, {}, bps, {"wer": estimate})
    return Summary("set <1>", 5, {"wer": MetricInfo("WER", "%", False, 2, judge)}, systems)


def test_a_cell_of_another_judge_does_not_get_into_a_column() -> None:
    with pytest.raises(ValueError, match="judge"):
        Block("t", (Column("WER", "hubert"),), (Group(None, ((Cell("3.1", judge="whisper"),),)),))


def test_two_judges_make_two_columns() -> None:
    runs = [summary("hubert"), summary("whisper", ("c",))]
    entries = [Entry((name,), system) for run in runs for name, system in run.systems.items()]
    block = systems_block("t", ("System",), [(None, entries)], runs)
    wer = [index for index, column in enumerate(block.columns) if column.heading == "WER (%)"]
    assert [block.columns[index].judge for index in wer] == ["hubert", "whisper"]
    rows = block.groups[0].rows
    assert [row[wer[0]].text for row in rows] == ["2.00", "3.00", "–"]
    assert [row[wer[1]].text for row in rows] == ["–", "–", "2.00"]


def test_best_is_the_lowest_where_lower_is_better() -> None:
    run = summary("hubert", ("a", "b", "c"))
    entries = [Entry((name,), system) for name, system in run.systems.items()]
    rows = systems_block("t", ("System",), [(None, entries)], [run]).groups[0].rows
    assert [row[-1].mark for row in rows] == ["best", "second", None]


def test_a_missing_system_is_a_row_of_dashes_and_a_note() -> None:
    run = summary("hubert")
    entries = [Entry(("A",), run.systems["a"]), Entry(("B",), None, note="s-vfr-25 is not trained yet")]
    block = systems_block("t", ("System",), [(None, entries)], [run])
    assert [cell.text for cell in block.groups[0].rows[1]] == ["B", "–", "–", "–", "–", "–"]
    assert block.notes == ("B: s-vfr-25 is not trained yet",)


class Checker(HTMLParser):
    """Open and close tags match; remembers what the page refers to."""

    void = frozenset({"meta", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.links: list[str] = []
        self.rows: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += int(dict(attrs).get("colspan") or 1)
        if tag not in self.void:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def test_html_is_sound_self_contained_and_inert(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    hostile = dataclasses.replace(summary("hubert & <co>"), source="<script>alert(1)</script>")
    hostile.save(tmp_path)
    make_report([tmp_path], tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert not checker.stack
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in checker.links)
    assert text.count("<script") == 1, "the page's own"
    assert "default-src 'none'" in text
    assert "hubert &amp; &lt;co&gt;" in text


@pytest.mark.parametrize("name", paper.tables())
def test_every_paper_table_renders_with_all_its_cells(name: str) -> None:
    block = paper.reference_block(name)
    checker = Checker()
    checker.feed(html_table(block))
    assert set(checker.rows) == {len(block.columns)}
    lines = [line for line in markdown_table(block).splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert len(lines) == 2 + sum(bool(group.title) + len(group.rows) for group in block.groups)
    body = latex_table(block)
    rows = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(block.columns) - 1}
    assert body.count("{") - body.count(r"\{") == body.count("}") - body.count(r"\}")
    assert body.isascii()
    assert "paper" in markdown_table(block).lower()


def test_report_has_markdown_latex_html_and_vector_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    summary("hubert").save(tmp_path)
    files = make_report([tmp_path], tmp_path / "out")
    assert [path.name for path in files] == ["report.md", "report.tex", "report.html"]
    assert "<svg" in (tmp_path / "out" / "rate_distortion-wer.svg").read_text()
    assert (tmp_path / "out" / "rate_distortion-wer.pdf").read_bytes().startswith(b"%PDF")
    text = files[0].read_text()
    assert "(rate_distortion-wer.svg)" in text
    assert "System a" in text
    assert "hubert" in text
    assert "{rate_distortion-wer.pdf}" in files[1].read_text()
    assert r"\end{document}" in files[1].read_text()


def test_the_papers_rows_stand_there_only_when_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    summary("hubert").save(tmp_path)
    for asked in (False, True):
        (text, *_) = [path.read_text() for path in make_report([tmp_path], tmp_path / f"{asked}", paper=asked)]
        assert ("Reference rows from the paper" in text) == asked


def test_headings_say_what_was_compared(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one = summary("hubert")
    assert compared(one) == "System a · System b"
    assert compared(summary("hubert", tuple("abcdef"))) == "6 codecs: System a · System b · System c and others"
    for name in ("run-1", "run-2"):
        (tmp_path / name).mkdir()
        one.save(tmp_path / name)
    (single, *_) = make_report([tmp_path / "run-1"], tmp_path / "single")
    assert single.read_text().startswith("# System a · System b\n")
    (both, *_) = make_report([tmp_path / "run-1", tmp_path / "run-2"], tmp_path / "both", title="Mine")
    assert [line for line in both.read_text().splitlines() if line.startswith("#")] == [
        "# Mine", "## System a · System b", "## System a · System b", "## Rate and distortion"
    ]  # fmt: skip


def test_the_best_codec_is_marked_and_not_the_reference() -> None:
    run = summary("hubert", ("a", "b", "c"))
    run.systems["a"] = dataclasses.replace(run.systems["a"], series="Reference")
    codecs, beside = run_block(run).groups
    assert [row[-1].mark for row in codecs.rows] == ["second", "best"]  # highest rate first, lower WER is better
    assert beside.title == "Not coded"
    assert [row[-1].mark for row in beside.rows] == [None]


def test_an_unknown_rate_and_odd_files_are_notes() -> None:
    run = summary("hubert")
    run.systems["a"] = dataclasses.replace(run.systems["a"], bps=None, remarks=("2 files match none: x, y",))
    block = run_block(run)
    assert block.notes == (
        "System a: 2 files match none: x, y; its rate is not known; give bps=N, or {bits} in a command",
    )
    assert [cell.text for cell in block.groups[0].rows[1][1:5]] == ["–"] * 4


@pytest.mark.parametrize(
    "rates", [[800], [790, 801, 812], [400, 1300], [450, 700, 800, 24_000], [600, 256_000], [0.5, 90_000]]
)
def test_a_rate_axis_fits_its_points_and_has_ticks(rates: list[float]) -> None:
    low, high, logarithmic = figures.rate_axis(rates)
    assert low < min(rates) <= max(rates) < high
    used = (math.log(max(rates)) - math.log(min(rates))) / (math.log(high) - math.log(low)) if len(rates) > 1 else 1
    assert used > 0.8, "the points take up most of the axis"
    ticks = figures.rate_ticks(low, high, logarithmic)
    assert 2 <= len(ticks) <= 7
    assert all(low <= tick <= high for tick in ticks)


def test_without_a_rate_there_is_no_figure(tmp_path: Path) -> None:
    run = summary("hubert")
    unrated = {name: dataclasses.replace(system, series="Reference") for name, system in run.systems.items()}
    assert figures.rate_distortion([dataclasses.replace(run, systems=unrated)], tmp_path) is None


def test_a_picture_is_numbered_only_if_its_metric_has_several_judges(tmp_path: Path) -> None:
    run = summary("hubert")
    infos = dict.fromkeys(("werv2", "wer"), run.metrics["wer"])
    systems = {
        key: dataclasses.replace(system, metrics=dict.fromkeys(infos, system.metrics["wer"]))
        for key, system in run.systems.items()
    }
    both = dataclasses.replace(run, metrics=infos, systems=systems)
    figure = figures.rate_distortion([both, summary("whisper")], tmp_path)
    assert figure is not None
    stems = [panel.stem for panel in figure.panels]
    assert stems == ["rate_distortion-werv2", "rate_distortion-wer", "rate_distortion-wer-2"]


def test_a_table_without_rows_is_its_notes(tmp_path: Path) -> None:
    block = Block("Measured here", (Column("System"),), (), notes=("No ratings given.",))
    write(Report("t", "", (Section("s", "", (block,)),)), tmp_path)
    for suffix, table in (("md", "| System"), ("tex", "tabular"), ("html", "<table>")):
        text = (tmp_path / f"report.{suffix}").read_text()
        assert "No ratings given." in text
        assert table not in text


def test_an_empty_section_still_makes_a_report(tmp_path: Path) -> None:
    write(Report("t", "", (Section("s", "", ()),)), tmp_path)
    assert "## s" in (tmp_path / "report.md").read_text()
