"""A listening test in a real browser: by keyboard, reloaded, with a server that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser_support import CONTRAST, Page, browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from web_support import ADMIN, SYSTEMS, served

from dtm_codec.web.app import create_app
from dtm_codec.web.listening.routes import RunningTest

PHONE = (390, 844)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as page:
        yield page


WANTED = {"reference": 100, "anchor": 20} | {name: 90 - 10 * i for i, name in enumerate(SYSTEMS)}


@pytest.fixture
def listening_url(running: RunningTest) -> Iterator[str]:
    with served(create_app(listening=running, admin_token=ADMIN)) as url:
        yield url


def rate_by_keys(page: Page, running: RunningTest, number: int, skip: int = 0) -> None:
    """Hear and rate every version after the first `skip`, with keys alone."""
    ids = page.script("return [...document.querySelectorAll('#stimuli input')].map((e) => e.dataset.id)")
    for index, stimulus in list(enumerate(ids, start=1))[skip:]:
        page.press(str(index))
        page.until(lambda i=index: playing(page) == i, f"version {index} is not heard")
        below = (100 - WANTED[running.session(number).stimuli[stimulus].system]) // 10
        page.press(Keys.END, *[Keys.PAGE_DOWN] * below, Keys.ARROW_DOWN, Keys.ARROW_UP)


PRESSED = """
const buttons = [document.getElementById("reference"), ...document.querySelectorAll("#stimuli button")];
return buttons.findIndex((button) => button.getAttribute("aria-pressed") === "true");
"""


def playing(page: Page) -> int:
    """Which version is pressed; 0 is the reference."""
    return int(page.script(PRESSED))


def on_page(page: Page, title: str) -> None:
    page.until(lambda: page["page"].is_displayed() and page.text("page-title") == title, f"{title} does not come")


def test_a_whole_test_by_keyboard_with_a_reload_and_right_results(page: Page, listening_url: str, running: RunningTest):
    page.resize(1280, 900)
    page.open(listening_url)
    page.shows("welcome")
    assert page.text("title") == "A <b>test</b>", "a title is text"
    page.script("document.activeElement.blur()")
    page.press(Keys.TAB)
    assert page.driver.switch_to.active_element.get_attribute("id") == "name"
    page.press("<i>Ann</i>", Keys.ENTER)

    page.shows("volume")
    assert not page["volume-done"].is_enabled(), "nothing was heard yet"
    page.press(Keys.SPACE)
    page.until(lambda: page["volume-done"].is_enabled(), "it does not play")
    page.press(Keys.TAB, Keys.ARROW_DOWN)
    page.press(Keys.TAB)
    page.press(Keys.ENTER)

    on_page(page, "Training")
    page.press(Keys.ENTER)
    assert page.text("page-title") == "Training", "not before all is rated"
    for index in range(1, 6):
        page.press(str(index))
        page.press(Keys.PAGE_UP)
    page.press(Keys.ENTER)

    on_page(page, "Recording 1 of 3")
    assert running.store.ratings() == [], "training is not recorded"
    assert "5 not heard, 5 not rated" in page.text("missing")
    rate_by_keys(page, running, 1)
    page.press("r")
    assert playing(page) == 0
    page.press(Keys.ENTER)

    on_page(page, "Recording 2 of 3")
    assert len(running.store.ratings()) == 5
    page.press("1")
    page.press(Keys.END, Keys.PAGE_DOWN, Keys.ARROW_DOWN)
    page.driver.refresh()
    on_page(page, "Recording 2 of 3")
    assert page.text("progress-text") == "1 of 3 done"
    outputs = page.script("return [...document.querySelectorAll('#stimuli output b')].map((e) => e.textContent)")
    assert outputs == ["89", "–", "–", "–", "–"], "the draft is still there"
    rate_by_keys(page, running, 1)
    page.press(Keys.ENTER)

    on_page(page, "Recording 3 of 3")
    rate_by_keys(page, running, 1)
    page["next"].send_keys(Keys.ENTER)
    page.shows("done")
    page.driver.refresh()
    page.shows("done")
    assert page.text("listener") == running.store.listeners()[0].label

    stored = {(rating.trial, rating.system): rating.rating for rating in running.store.ratings()}
    assert len(stored) == 15
    assert all(rating == WANTED[system] for (_, system), rating in stored.items())

    page.open(f"{listening_url}/results#token={ADMIN}")
    page.shows("results")
    assert page.driver.current_url == f"{listening_url}/results", "the token does not stay in the address"
    rows = page.script(
        "return [...document.querySelectorAll('#scores tr')].map((r) => [...r.children].map((c) => c.textContent))"
    )
    assert {row[0]: float(row[1]) for row in rows} == WANTED
    assert "<i>Ann</i>" in page.text("listeners")
    assert page.complaints() == []


def test_the_results_page_asks_for_its_token(page: Page, listening_url: str):
    page.open(f"{listening_url}/results")
    page.shows("ask")
    page["token"].send_keys("wrong", Keys.ENTER)
    page.until(lambda: "token" in page.text("message"), "no message")
    assert not page["results"].is_displayed()
    page["token"].clear()
    page["token"].send_keys(ADMIN, Keys.ENTER)
    page.shows("results")
    page.complaints()  # the browser notes the refusal


def enter(page: Page, url: str) -> None:
    """Come anew, to the training page."""
    page.open(url)
    page.script("localStorage.clear()")
    page.driver.refresh()
    page.shows("welcome")
    page["name"].send_keys(Keys.ENTER)
    page.shows("volume")
    page["volume-play"].click()
    page.until(lambda: page["volume-done"].is_enabled(), "it does not play")
    page["volume-done"].click()
    on_page(page, "Training")


def first_recording(page: Page, url: str) -> None:
    """Come anew and pass the pages before the first trial."""
    enter(page, url)
    for index in range(1, 6):
        page.press(str(index))
        page.press(Keys.PAGE_UP)
    page.press(Keys.ENTER)
    on_page(page, "Recording 1 of 3")


def test_a_server_that_was_down_costs_no_rating(page: Page, running: RunningTest, listening_url: str):
    """Ratings that cannot be sent stay in the browser; the next attempt stores them."""
    first_recording(page, listening_url)
    rate_by_keys(page, running, 1)
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/api/listening/ratings"]})
    page.press(Keys.ENTER)
    page.until(lambda: "Not saved yet" in page.text("message"), "no message")
    assert running.store.ratings() == []
    page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    page["next"].click()
    on_page(page, "Recording 2 of 3")
    assert len(running.store.ratings()) == 5
    page.complaints()  # the browser notes what was blocked


def test_what_is_stored_cannot_be_changed_on_the_page(
    page: Page, running: RunningTest, listening_url: str, monkeypatch: pytest.MonkeyPatch
):
    """A save that breaks off in the middle: what the page shows in the end is what is stored."""
    first_recording(page, listening_url)
    rate_by_keys(page, running, 1)
    rate, left = running.store.rate, [2]

    def rate_two(*rating: Any) -> tuple[int, bool]:
        if left[0] == 0:
            raise OSError("the disk is full")
        left[0] -= 1
        return rate(*rating)

    monkeypatch.setattr(running.store, "rate", rate_two)
    page["next"].click()
    page.until(lambda: "Not saved yet" in page.text("message"), "no message")
    sliders = page.driver.find_elements(By.CSS_SELECTOR, "#stimuli input")
    assert [slider.is_enabled() for slider in sliders] == [False, False, True, True, True]
    sliders[2].send_keys(Keys.END)
    shown = {slider.get_attribute("data-id"): int(slider.get_property("value")) for slider in sliders}
    left[0] = 3
    page["next"].click()
    on_page(page, "Recording 2 of 3")
    stored = {(rating.trial, rating.system): rating.rating for rating in running.store.ratings()}
    known = running.session(1).stimuli
    assert stored == {(known[name].utterance, known[name].system): value for name, value in shown.items()}
    page.complaints()  # the browser notes the refusals


def test_a_rating_where_the_slider_stands_already_counts(page: Page, listening_url: str):
    first_recording(page, listening_url)
    page.driver.find_element(By.CSS_SELECTOR, "#stimuli input").click()  # in the middle
    assert "4 not rated" in page.text("missing")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_listening_test_fits_a_phone_and_has_contrast(page: Page, listening_url: str, dark: bool):
    page.resize(*PHONE, scale=2, dark=dark)
    page.open(listening_url)
    page.script("localStorage.clear()")
    page.driver.refresh()
    page.shows("welcome")
    assert page.script(CONTRAST) == []
    page["name"].send_keys(Keys.ENTER)
    page.shows("volume")
    page["volume-play"].click()
    page.until(lambda: page["volume-done"].is_enabled(), "it does not play")
    page["volume-done"].click()
    on_page(page, "Training")
    page.press("1")
    assert page.script(CONTRAST) == []
    assert page.script("return document.documentElement.scrollWidth") <= 390
    assert page.complaints() == []
