"""Results in a real browser: on a phone, and when the screening leaves nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_support import Page, browser
from web_support import ADMIN, served

from dtm_codec.web.app import create_app
from dtm_codec.web.listening.routes import RunningTest

PHONE = (390, 844)
MEASURES = """
const lines = (cell) => Math.round(cell.getBoundingClientRect().height / parseFloat(getComputedStyle(cell).lineHeight));
return [...document.querySelectorAll("#results section:not([hidden]) .scroll")].map((box) => ({
  first: Math.min(...[...box.querySelectorAll("tbody th")].map((cell) => cell.getBoundingClientRect().width)),
  lines: Math.max(...[...box.querySelectorAll("tbody th")].map(lines)),
  hidden: box.scrollWidth - box.clientWidth,
  shadow: getComputedStyle(box).backgroundImage,
}));
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as page:
        yield page


def rated(running: RunningTest, *references: int) -> None:
    """One listener for each rating of the hidden reference."""
    for number, reference in enumerate(references):
        _, listener = running.store.add_listener(f"listener {number}")
        for utterance in running.test.utterances:
            for system in running.test.systems:
                running.store.rate(listener, utterance, system, reference if system == "reference" else 40 + number)


def test_tables_on_a_phone_have_readable_names_and_show_that_they_scroll(page: Page, running: RunningTest) -> None:
    rated(running, 100, 95)
    with served(create_app(listening=running, admin_token=ADMIN)) as url:
        page.resize(*PHONE, scale=2)
        page.open(f"{url}/results#token={ADMIN}")
        page.shows("results")
        tables = page.script(MEASURES)
        assert page.script("return document.documentElement.scrollWidth") <= 390
        assert not page["screened"].is_displayed()
    assert [table["first"] >= 110 for table in tables] == [True] * 3
    assert max(table["lines"] for table in tables) <= 3
    assert tables[0]["hidden"] > 0
    assert all("linear-gradient" in table["shadow"] for table in tables)
    assert page.complaints() == []


def test_results_without_anyone_left_say_so_and_offer_all(page: Page, running: RunningTest) -> None:
    rated(running, 10, 20)
    with served(create_app(listening=running, admin_token=ADMIN)) as url:
        page.resize(1280, 900)
        page.open(f"{url}/results#token={ADMIN}")
        page.shows("screened")
        assert "All 2 listeners" in page.text("screened-text")
        assert page.script("return document.getElementById('scores').children.length") == 0
        page["unscreened"].click()
        page.until(lambda: page.script("return document.getElementById('scores').children.length") == 5, "no scores")
        assert "without screening" in page.text("screened-text")


def test_the_tables_of_a_report_on_a_phone_show_that_they_scroll(page: Page, tmp_path: Path) -> None:
    from dtm_codec.evaluation.document import Report, Section
    from dtm_codec.evaluation.rendering import write
    from dtm_codec.evaluation.tables import Block, Cell, Column, Group

    columns = tuple(Column(f"column {number}") for number in range(12))
    rows = (tuple(Cell(f"{number}.25") for number in range(12)),)
    blocks = tuple(Block(name, columns, (Group(None, rows),), reference=name == "paper") for name in ("own", "paper"))
    files = write(Report("A report", "", (Section("One", "", blocks),)), tmp_path)
    page.resize(*PHONE, scale=2)
    page.open(next(path for path in files if path.suffix == ".html").as_uri())
    frames = page.script(
        "return [...document.querySelectorAll('.frame')].map((box) => [box.scrollWidth - box.clientWidth,"
        " getComputedStyle(box).backgroundImage, getComputedStyle(box.querySelector('table')).backgroundColor])"
    )
    assert len(frames) == 2
    for hidden, shadow, above in frames:
        assert hidden > 0
        assert "linear-gradient" in shadow
        assert above == "rgba(0, 0, 0, 0)", "the table hides the shadow"
