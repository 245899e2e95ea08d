"""The report in a browser: it is heard, it sorts, it fits a phone, it prints."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("selenium")
pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

from browser_support import Page, browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.report import make_report
from dtm_codec.evaluation.runner import evaluate

SYSTEMS = ("lowpass:3500", "lowpass:1000", "lowpass:2000", "identity")

LISTEN_IN = """
const context = AudioNode.prototype.connect;
window.meters = [];
AudioNode.prototype.connect = function (target, ...rest) {
  if (target === this.context.destination && !(this.context instanceof OfflineAudioContext)) {
    const meter = this.context.createAnalyser();
    context.call(this, meter);
    window.meters.push(meter);
  }
  return context.call(this, target, ...rest);
};
"""
"""Puts a meter before the loudspeaker of every player that is made from now on."""

LOUDEST = """
const bins = new Float32Array(window.meters[0].frequencyBinCount);
window.meters[0].getFloatFrequencyData(bins);
const rate = window.meters[0].context.sampleRate;
const hertz = (i) => (i * rate) / 2 / bins.length;
const level = (from, to) => Math.max(...bins.filter((_, i) => hertz(i) >= from && hertz(i) < to));
return [level(100, 900), level(2500, 3400)];
"""
"""Level in dB below 900 Hz, and between 2.5 and 3.4 kHz, of what is heard now."""


SWITCH = """
const seconds = () => parseFloat(document.querySelector(".example .time").textContent);
const before = seconds();
document.querySelectorAll(".example .hear")[1].click();
return [before, seconds()];
"""
"""Where it is before and after a switch to another version; nothing else happens between."""


@pytest.fixture(scope="module")
def report(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    evaluate(SYSTEMS, ["stoi", "si-sdr"], read_data(manifest), folder / "run", save_audio=True)
    *_, page = make_report([folder / "run"], folder / "report", examples=2)
    return page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    with browser() as page:
        yield page


@pytest.fixture
def page(chromium: Page, report: Path) -> Page:
    chromium.resize(1280, 900)
    chromium.open(report.as_uri())
    ready = "return document.querySelectorAll('.example[data-ready]').length"
    chromium.until(lambda: chromium.script(ready) == 2, "the examples do not load")
    return chromium


def seconds(page: Page) -> float:
    return float(page.script("return document.querySelector('.example .time').textContent.split(' ')[0]"))


def heard(page: Page) -> int:
    rows = "[...document.querySelectorAll('.example')[0].querySelectorAll('.hear')]"
    return int(page.script(f"return {rows}.findIndex((b) => b.getAttribute('aria-pressed') === 'true')"))


def test_sound_comes_out_and_another_version_goes_on_at_the_same_instant(page: Page) -> None:
    page.script(LISTEN_IN)
    play, *_ = page.driver.find_elements(By.CSS_SELECTOR, ".play")
    play.click()
    page.until(lambda: seconds(page) > 0.2, "it does not play")
    assert play.text == "Pause"
    page.until(lambda: page.script(LOUDEST)[1] > -80, "nothing is heard between 2.5 and 3.4 kHz")
    before, after = page.script(SWITCH)
    assert after in (before, 0) or 0 <= after - before < 0.3, "it goes on, or has just begun its next round"
    page.press("2")  # the 1 kHz low-pass
    assert heard(page) == 2

    def only_low() -> bool:
        low, high = page.script(LOUDEST)
        return low > -60 and low - high > 40

    page.until(only_low, "the other version is not what is heard")
    page.press("0")
    assert heard(page) == 0
    page.until(lambda: page.script(LOUDEST)[1] > -80, "the reference is not heard again")
    play.click()
    page.until(lambda: play.text == "Play", "it does not stop")
    assert page.complaints() == []


def test_only_one_example_plays_at_a_time(page: Page) -> None:
    first, second = page.driver.find_elements(By.CSS_SELECTOR, ".play")
    first.click()
    page.until(lambda: first.text == "Pause", "it does not play")
    second.click()
    page.until(lambda: second.text == "Pause", "it does not play")
    assert first.text == "Play"
    second.send_keys(Keys.SPACE)
    page.until(lambda: second.text == "Play", "it does not stop")


def test_spectrograms_are_drawn_and_differ_between_versions(page: Page) -> None:
    pictures = page.script("return [...document.querySelectorAll('.example canvas')].map((c) => c.toDataURL())")
    assert len(set(pictures)) == len(pictures) == 2 * len(SYSTEMS)
    assert min(len(base64.b64decode(picture.partition(",")[2])) for picture in pictures) > 2000


def test_a_click_on_a_heading_sorts_and_marks_stay_with_their_rows(page: Page) -> None:
    def column(index: int) -> list[str]:
        return list(
            page.script(
                "return [...document.querySelectorAll('.measured tbody tr:not(.group)')]"
                ".map((row) => row.cells[arguments[0]].firstChild.textContent)",
                index,
            )
        )

    headings = page.driver.find_elements(By.CSS_SELECTOR, ".measured thead button")
    stoi = next(i for i, heading in enumerate(headings) if heading.text.startswith("STOI"))
    headings[stoi].click()
    values = [float(value) for value in column(stoi)]
    assert values == sorted(values, reverse=True), "more is better, so the best is on top"
    headings[stoi].click()
    assert [float(value) for value in column(stoi)] == sorted(values)
    headings[0].click()
    assert column(0) == sorted(column(0))
    assert page.script("return document.querySelectorAll('th[aria-sort]').length") == 1


@pytest.mark.parametrize("width", [390, 820])
def test_it_fits_a_phone_and_a_tablet(page: Page, width: int) -> None:
    page.resize(width, 844, scale=2)
    assert page.script("return document.documentElement.scrollWidth") <= width
    buttons = page.driver.find_elements(By.CSS_SELECTOR, ".hear, .play")
    assert min(button.size["height"] for button in buttons) >= 40, "buttons can be hit with a thumb"


def test_it_prints_with_its_pictures_and_without_its_buttons(page: Page, tmp_path: Path) -> None:
    printed = page.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": False})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not page.driver.find_element(By.CSS_SELECTOR, ".play").is_displayed()
        assert page.driver.find_element(By.CSS_SELECTOR, ".example canvas").is_displayed()
        frame = "const f = document.querySelector('.frame'); return getComputedStyle(f).overflowX"
        assert page.script(frame) == "visible"
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_saved_audio_there_is_a_report_all_the_same(manifest: Path, tmp_path: Path) -> None:
    evaluate(["identity"], ["stoi"], read_data(manifest), tmp_path / "run")
    *_, page = make_report([tmp_path / "run"], tmp_path / "report")
    assert 'class="example"' not in page.read_text()
