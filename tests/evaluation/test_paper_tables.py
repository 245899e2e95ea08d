"""paper.json: sound by itself, and equal to the paper's source where DTM_PAPER_TEX points to it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dtm_codec.evaluation import paper

SIZES = {
    "main": (12, 19),
    "ffr-vfr": (7, 4),
    "listening": (4, 8),
    "masking": (6, 6),
    "codebook": (7, 4),
    "selectors": (11, 10),
    "probing": (13, 15),
    "mls": (6, 10),
}


def test_every_table_is_there_with_all_its_rows() -> None:
    assert {name: (len(table.columns), len(table.rows)) for name, table in paper.tables().items()} == SIZES
    assert all(len(row) == len(table.columns) for table in paper.tables().values() for row in table.rows)


def test_content_and_position_bits_add_up_to_the_total() -> None:
    table = paper.tables()["main"]
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        if cells["Total bps"]:
            assert int(cells["Content"]) + int(cells["Pos"]) == int(cells["Total bps"]), cells["Model"]


def test_changes_follow_from_the_values_they_stand_beside() -> None:
    table = paper.tables()["ffr-vfr"]
    for row in table.rows:
        for heading, cell in zip(table.columns[2:], row[2:], strict=True):
            before, after, change = map(float, re.fullmatch(r"([\d.]+)→([\d.]+) \(([+-][\d.]+)%\)", cell).groups())
            sign = -1 if heading == "WER" else 1
            rounding = 100 * 0.01 / before  # both values are rounded to two places
            assert abs(sign * 100 * (after - before) / before - change) <= rounding + 0.05, (row[0], heading)


def test_tables_agree_with_each_other() -> None:
    main = {row[0]: row for row in paper.tables()["main"].rows}
    for row in paper.tables()["ffr-vfr"].rows:
        vfr = main[f"DTM-Codec@{row[0]}"]
        assert [cell.split("→")[1].split()[0] for cell in row[2:]] == list(vfr[7:])
    assert paper.tables()["codebook"].rows[0][3:] == paper.tables()["masking"].rows[3][2:]


def test_every_judged_column_names_its_judge() -> None:
    for name in paper.tables():
        block = paper.reference_block(name)
        judged = {column.heading for column in block.columns if column.judge}
        assert block.reference
        assert judged == {column.heading for column in block.columns} & set(paper.judges())


def test_curves_hold_the_rate_distortion_figure() -> None:
    curves = paper.curves("PESQ")
    assert curves["DTM-Codec VFR"] == [(400, 2.07), (640, 2.49), (800, 2.66), (1280, 2.95)]
    assert curves["DTM-Codec FFR"] == [(400, 1.97), (640, 2.32), (800, 2.46), (1280, 2.92)]


@pytest.mark.skipif("DTM_PAPER_TEX" not in os.environ, reason="DTM_PAPER_TEX does not point to the paper's source")
@pytest.mark.parametrize("name", SIZES)
def test_cells_are_those_of_the_source(name: str) -> None:
    table = paper.tables()[name]
    rows = _source_rows(Path(os.environ["DTM_PAPER_TEX"]).read_text(encoding="utf-8"), table.label)
    assert len(rows) == len(table.rows)
    for source, typed in zip(rows, table.rows, strict=True):
        assert [_plain(cell) for cell in source] == [_plain(cell or "") for cell in typed]


def _source_rows(source: str, label: str) -> list[list[str]]:
    """Cells of a LaTeX table: lines with '&' between the first rule after the label and the end of the tabular."""
    start = source.index(f"\\label{{{label}}}")
    body = source[source.index("\\midrule", start) : source.index("\\end{tabular", start)]
    body = re.sub(r"\\shortstack\[\w\]\{((?:[^{}]|\{[^{}]*\})*)\}", lambda m: m[1].replace(r"\\", " "), body)
    lines = (
        re.sub(r"\\(?:\w*rule(?:\([^)]*\))?(?:\{[^}]*\})?|addlinespace\[[^]]*\])", "", x) for x in body.split(r"\\")
    )
    return [line.split("&") for line in lines if "&" in line and "multicolumn" not in line]


def _plain(cell: str) -> str:
    """What is left when LaTeX's and our ways of writing a cell are taken off: letters, digits, points and signs."""
    cell = re.sub(r"\\cite\{[^}]*\}|\\(?:textbf|underline|texttt|strut|tau|max|pm|rightarrow|dagger)\b", "", cell)
    cell = cell.replace("---", "").replace("S_{}", "S_max")
    return re.sub(r"[^\w.+-]|_", "", cell.replace("τ", ""))
