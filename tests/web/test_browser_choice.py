"""A/B and A/B/X in a browser: by keys and by clicks, on a desktop and on a phone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_support import CONTRAST, Page, browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_browser_listening import enter, on_page
from web_support import ADMIN, make_prepared, served

from dtm_codec.web.app import create_app
from dtm_codec.web.listening.routes import RunningTest


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as chromium:
        yield chromium


@pytest.fixture
def running(tmp_path: Path, speech, request) -> Iterator[RunningTest]:
    make_prepared(tmp_path, speech, utterances=2, **request.param)
    test = RunningTest(tmp_path / "test")
    yield test
    test.store.close()


@pytest.fixture
def url(running: RunningTest) -> Iterator[str]:
    with served(create_app(listening=running, admin_token=ADMIN)) as address:
        yield address


def heard(page: Page) -> list[bool]:
    buttons = page.driver.find_elements(By.CSS_SELECTOR, "#hearing button")
    return [button.get_attribute("aria-pressed") == "true" for button in buttons]


@pytest.mark.parametrize("running", [{"method": "abx", "completion_code": "unique"}], indirect=True)
def test_a_whole_abx_test_by_keyboard_with_a_reload_and_right_results(page: Page, running: RunningTest, url: str):
    page.resize(1280, 900)
    enter(page, f"{url}?PROLIFIC_PID=5f3a")
    assert page.text("title") == "A <b>test</b>", "the headline is the test's title"
    assert not page["reference"].is_displayed()
    assert "3 not heard, no answer" in page.text("missing")
    for key, expected in (("a", [True, False, False]), ("b", [False, True, False]), ("x", [False, False, True])):
        page.press(key)
        page.until(lambda e=expected: heard(page) == e, f"{key} is not heard")
    page.until(lambda: page.text("missing") == "Still missing: no answer.", "not all is heard")
    page.driver.find_element(By.CSS_SELECTOR, "#answers input").send_keys(Keys.SPACE)
    assert page.text("missing") == "Answered."
    page.press(Keys.ENTER)
    for number in (1, 2, 3):
        on_page(page, f"Comparison {number} of 3")
        assert len(running.store.choices()) == number - 1, "training is not recorded"
        name = running.choice_session(1).trials[number - 1].name
        asked = running.choice_session(1).comparisons[name]
        for key in "abx":
            page.press(key)
        answer = page.driver.find_elements(By.CSS_SELECTOR, "#answers input")[0 if asked.x == asked.a else 1]
        answer.send_keys(Keys.SPACE)
        if number == 2:
            page.driver.refresh()
            on_page(page, "Comparison 2 of 3")
            page.until(lambda: page.text("missing") == "Answered.", "the draft is lost")
        page.press(Keys.ENTER)
    page.shows("done")
    assert page.text("code") == running.store.code("completion", 1)
    assert page.text("listener") == running.store.listeners()[0].label
    assert [listener.name for listener in running.store.listeners()] == ["5f3a"]
    assert all(choice.chosen == choice.x for choice in running.store.choices())
    page.open(f"{url}/results#token={ADMIN}")
    page.shows("results")
    assert page["preferences"].is_displayed()
    assert not page["scores"].is_displayed()
    shares = "return [...document.querySelectorAll('#preferences-rows tr')].map((row) => row.cells[1].textContent)"
    rows = page.script(shares)
    assert rows == ["100 %"] * 3
    assert running.store.code("completion", 1) in page.text("listeners")
    assert page.complaints() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("running", [{"method": "ab", "no_preference": True, "trials": 1}], indirect=True)
def test_an_ab_test_by_touch_on_a_phone(page: Page, running: RunningTest, url: str, dark: bool):
    page.resize(390, 844, scale=2, dark=dark)
    enter(page, url)
    assert page.script(CONTRAST) == []
    assert page.script("return document.documentElement.scrollWidth") <= 390
    for title in ("Training", "Comparison 1 of 1"):
        on_page(page, title)
        for button in page.driver.find_elements(By.CSS_SELECTOR, "#hearing button"):
            button.click()
            assert button.size["height"] >= 44
        page.driver.find_elements(By.CSS_SELECTOR, "#answers label")[2].click()
        page.until(lambda: page["next"].is_enabled(), page.text("missing"))
        page["next"].click()
    page.shows("done")
    assert not page["completion"].is_displayed()
    assert [choice.chosen for choice in running.store.choices()] == [""]
    assert page.complaints() == []
