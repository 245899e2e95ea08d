"""The pages in a real browser: seen, heard, operated by keyboard, reloaded."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_support import Page, browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from web_support import ADMIN, SYSTEMS, served

from dtm_codec import DTMCodec
from dtm_codec.encoded import Encoded
from dtm_codec.errors import RateError
from dtm_codec.speech.audio import sample_path, write_audio
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo, Heard, OtherCodec
from dtm_codec.web.listening.routes import RunningTest

PHONE = (390, 844)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def page(tmp_path_factory, downloads: Path, speech) -> Iterator[Page]:
    microphone = tmp_path_factory.mktemp("microphone") / "speech.wav"
    write_audio(microphone, speech, 16_000)
    with browser(downloads, microphone) as page:
        yield page


@pytest.fixture(scope="module")
def demo_url(codec: DTMCodec) -> Iterator[str]:
    with served(create_app(Demo(codec, "tiny"))) as url:
        yield url


@pytest.fixture
def demo(page: Page, demo_url: str) -> Iterator[Page]:
    """The demo with its sample encoded. Afterwards, the console has nothing to say."""
    page.resize(1280, 900)
    page.open(demo_url)
    page.until(lambda: page["download"].is_enabled(), f"nothing was encoded; {page.text('message')}")
    yield page
    assert page.complaints() == []


COLOURS = """
const canvas = document.getElementById(arguments[0]);
return new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size;
"""


def seconds(page: Page) -> float:
    return page.number("time")


def test_the_demo_encodes_and_shows_what_it_spent(demo: Page):
    assert demo.text("source-name").startswith("Sample")
    for counted in ("written", "nominal"):
        content, position, total = (demo.number(f"{counted}-{part}") for part in ("content", "position", "total"))
        assert content + position == pytest.approx(total, abs=1)
    assert 785 < demo.number("written-total") <= 800
    assert demo.number("nominal-position") == 100
    assert demo.number("fact-file") > 500
    for canvas in ("original", "decoded", "rate"):
        assert demo.script(COLOURS, canvas) > 20, f"{canvas} is blank"


def test_the_slider_changes_the_bits(demo: Page):
    before = demo.number("written-total")
    demo["bitrate"].send_keys(Keys.HOME)
    demo.until(lambda: demo.number("written-total") < before / 3, "the lowest rate spends as many bits")
    assert demo.text("bitrate-value") == "240"
    assert 230 < demo.number("written-total") <= 240
    demo["bitrate"].send_keys(Keys.END)
    demo.until(lambda: demo.number("written-total") > 1.4 * before, "the highest rate spends as few bits")
    assert demo.number("fact-rate") > 75
    demo["quality-low"].click()
    demo.until(lambda: 430 < demo.number("written-total") <= 450, "a quality is no rate")
    assert demo["quality-low"].get_attribute("aria-pressed") == "true"


def test_all_of_one_look_is_above_the_fold(demo: Page):
    demo.resize(1280, 720)
    for part in ("source", "timeline", "position", "bitrate", "bits", "download"):
        bottom = demo.script("return document.getElementById(arguments[0]).getBoundingClientRect().bottom", part)
        assert 0 < bottom <= 720, f"{part} ends at {bottom}"
    assert demo.script("return document.documentElement.scrollWidth") <= 1280


def test_figures_of_before_are_marked_while_new_ones_are_computed(demo: Page, monkeypatch: pytest.MonkeyPatch):
    encode, go_on = Demo.encode, threading.Event()

    def slow(self: Demo, *arguments: Any) -> dict[str, Any]:
        assert go_on.wait(30)
        return encode(self, *arguments)

    monkeypatch.setattr(Demo, "encode", slow)
    before = demo.text("written-total")
    assert not demo["stale"].is_displayed()
    demo["bitrate"].send_keys(Keys.HOME)
    demo.until(lambda: demo["stale"].is_displayed(), "old figures look like new ones")
    assert demo.text("written-total") == before
    assert "stale" in demo["figure-decoded"].get_attribute("class")
    go_on.set()
    demo.until(lambda: not demo["stale"].is_displayed(), "new figures look like old ones")
    assert demo.number("written-total") < 250
    assert "stale" not in demo["figure-decoded"].get_attribute("class")


STRIP = """
const canvas = document.getElementById("original");
const ratio = canvas.width / canvas.getBoundingClientRect().width;
const { data } = canvas.getContext("2d").getImageData(0, canvas.height - Math.round(5 * ratio), canvas.width, 1);
return Array.from({ length: canvas.width }, (_, x) => data[4 * x + 1]);
"""


def test_kept_steps_are_a_strip_of_light_and_dark(demo: Page):
    strip = demo.script(STRIP)
    light, dark = (sum(test(green) for green in strip) / len(strip) for test in (lambda g: g > 180, lambda g: g < 60))
    assert light > 0.2
    assert dark > 0.2
    assert light + dark > 0.6, "a haze"


def test_what_words_mean_is_one_click_away(demo: Page):
    for name, word in (("kept", "token only for steps"), ("bits", "which steps they belong to")):
        assert not demo[f"help-{name}"].is_displayed()
        demo.driver.find_element(By.CSS_SELECTOR, f"[popovertarget=help-{name}]").click()
        assert word in demo[f"help-{name}"].text
        demo.press(Keys.ESCAPE)
        assert not demo[f"help-{name}"].is_displayed()


def test_the_rates_of_training_are_marked(page: Page, codec: DTMCodec, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(codec, "trained_bitrates", (400.0, 1000.0))
    with served(create_app(Demo(codec, "tiny"))) as url:
        page.open(url)
        page.until(lambda: page.text("bitrate-useful") == "trained at 400 – 1000", "no range")
        track = page.script("return document.getElementById('bitrate').style.getPropertyValue('--track')")
        assert track.count("var(--muted)") == 1
        page.until(lambda: page["download"].is_enabled(), "nothing was encoded")


def test_another_codec_is_chosen_and_heard(page: Page, codec: DTMCodec):
    def noise(audio: np.ndarray, _: int) -> Heard:
        return Heard(np.random.default_rng(0).uniform(-0.1, 0.1, audio.size).astype(np.float32), 6000)

    with served(create_app(Demo(codec, "tiny", others={"noise": OtherCodec("Noise 1", noise)}))) as url:
        page.open(url)
        page.until(lambda: page["download"].is_enabled(), "nothing was encoded")
        assert not page["hear-other"].is_displayed()
        Select(page["other"]).select_by_visible_text("Noise 1")
        page.until(lambda: page["hear-other"].is_displayed() and page["hear-other"].is_enabled(), "no button")
        page["hear-other"].click()
        page.until(lambda: page.text("title-decoded") == "Noise 1", "no picture")
        assert page.number("caption-decoded") == pytest.approx(6000 / 7.1, abs=2)
        page["hear-decoded"].click()
        page.until(lambda: page.text("title-decoded") == "Decoded", "no way back")
        assert page.complaints() == []


def test_it_plays_and_switches_without_losing_its_place(demo: Page):
    demo.press(Keys.SPACE)
    demo.until(lambda: seconds(demo) > 0.3, "it does not play")
    assert demo.text("play").strip() == "Pause"
    assert demo["hear-decoded"].get_attribute("aria-pressed") == "true"
    before = seconds(demo)
    demo.press("x")
    assert demo["hear-original"].get_attribute("aria-pressed") == "true"
    assert before <= seconds(demo) < before + 2
    demo["play"].click()
    stopped = seconds(demo)
    assert seconds(demo) == stopped
    demo["position"].send_keys(Keys.END)
    assert seconds(demo) == pytest.approx(7.1, abs=0.1)


PLAYER_TEST = """
const { Player } = await import("/static/player.js");
const player = new Player();
const rate = player.context.sampleRate;
const buffers = [1, -1].map((sign) => {
  const buffer = player.context.createBuffer(1, 4 * rate, rate);
  buffer.copyToChannel(Float32Array.from({ length: 4 * rate }, (_, i) => sign * (0.1 + 0.2 * i / rate)), 0);
  return buffer;
});
const ear = player.context.createAnalyser();
ear.fftSize = 256;
player.volume.connect(ear);
const hear = async (ms) => {
  await new Promise((resolve) => setTimeout(resolve, ms));
  const heard = new Float32Array(256);
  ear.getFloatTimeDomainData(heard);
  const value = heard[255];
  return { sign: Math.sign(value), heard: (Math.abs(value) - 0.1) / 0.2, shown: player.position };
};
const answers = [];
player.load(buffers);
await player.play();
answers.push(await hear(400));
player.select(1);
answers.push(await hear(200));
player.select(0);
answers.push(await hear(200));
player.setLoop(true, 1.0, 1.5);
for (let i = 0; i < 6; i++) answers.push(await hear(130));
player.pause();
answers.push(await hear(100));
return answers;
"""


def test_all_sounds_run_in_lockstep_and_loop_in_their_region(demo: Page):
    """Two sounds whose samples tell their position and their name: what is heard is where the player says."""
    demo["kept"].click()  # browsers sound only for pages that were touched
    answers = demo.promise(PLAYER_TEST)
    assert isinstance(answers, list), answers
    first, second, third, *looped, paused = answers
    assert [answer["sign"] for answer in (first, second, third)] == [1, -1, 1]
    for answer in (first, second, third):
        assert answer["heard"] == pytest.approx(answer["shown"], abs=0.06)
    assert 0.1 < first["heard"] < second["heard"] < third["heard"]
    inside = [answer["heard"] for answer in looped if answer["heard"] > 0.95]  # between: the fade at the seam
    assert len(inside) >= 4
    assert all(0.95 < heard < 1.55 for heard in inside)
    assert any(later < earlier for earlier, later in itertools.pairwise(inside)), "it never came round"
    assert paused["sign"] == 0


def test_the_file_that_is_saved_is_the_encoding(demo: Page, downloads: Path):
    demo["download"].click()
    demo.until((downloads / "speech.dtm").exists, "no file came")
    encoded = Encoded.from_bytes((downloads / "speech.dtm").read_bytes())
    assert encoded.bits.total / encoded.duration_s == pytest.approx(demo.number("nominal-total"), abs=0.6)
    assert encoded.duration_s == pytest.approx(7.1)


def test_a_file_is_opened_and_a_bad_one_refused(demo: Page, tmp_path: Path):
    demo["file"].send_keys(str(sample_path("amiable")))
    demo.until(lambda: demo.text("source-name") == "amiable.flac", "the file is not loaded")
    demo.until(lambda: demo.text("time").endswith("3.3 s"), "its length is not shown")
    evil = tmp_path / "<img src=x onerror=document.title='hacked'>.wav"
    evil.write_bytes(b"no audio")
    demo["file"].send_keys(str(evil))
    demo.until(lambda: "cannot read" in demo.text("message"), "no message")
    assert demo.text("message").startswith(evil.name), "which file?"
    assert demo.text("source-name") == "amiable.flac", "what was there stays"
    demo.complaints()  # the browser notes the refusal
    good = tmp_path / "<b>name.flac"
    good.write_bytes(sample_path("amiable").read_bytes())
    demo["file"].send_keys(str(good))
    demo.until(lambda: demo.text("source-name") == "<b>name.flac", "a name is text")


def test_what_belongs_to_the_clip_before_is_gone_at_once(demo: Page, monkeypatch: pytest.MonkeyPatch):
    def busy(*_: object) -> dict[str, Any]:
        raise RateError("not now")

    monkeypatch.setattr(Demo, "encode", busy)
    demo["file"].send_keys(str(sample_path("amiable")))
    demo.until(lambda: "not now" in demo.text("message"), "no message")
    assert demo.text("written-total") == "–"
    assert [demo[name].is_enabled() for name in ("hear-original", "hear-decoded", "download")] == [True, False, False]
    assert demo["hear-original"].get_attribute("aria-pressed") == "true"
    demo.complaints()  # the browser notes the refusal


def test_a_recording_is_encoded(demo: Page):
    demo["record"].click()
    demo.until(lambda: demo.text("record").strip() == "Stop", "it does not record")
    demo.until(lambda: float(demo["level"].get_property("value")) > 0.02, "no level")
    demo.until(lambda: float(re.findall(r"[\d.]+", demo.text("source-hint"))[0]) > 1.5, "no timer")
    demo["record"].click()
    demo.until(lambda: not demo["level"].is_displayed(), "the level stays")
    demo.until(lambda: demo.text("source-name") == "Your recording", f"no recording; {demo.text('message')}")
    demo.until(lambda: 0 < float(re.findall(r"[\d.]+", demo.text("caption-original"))[0]) < 7, "its length is wrong")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_demo_fits_a_phone(demo: Page, dark: bool):
    demo.resize(*PHONE, scale=2, dark=dark)
    assert demo.script("return document.documentElement.scrollWidth") <= 390
    assert demo.script(SMALL) == [], "too small to touch"


SMALL = """
const controls = [...document.querySelectorAll("button, input[type=range]")].filter((e) => e.offsetParent);
return controls.filter((e) => e.offsetHeight < 30).map((e) => e.id);
"""

CONTRAST = """
const luminance = (colour) => {
  const channels = colour.match(/[\\d.]+/g).slice(0, 3).map((value) => {
    const c = value / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2];
};
const background = (node) => {
  for (let e = node; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$|transparent/.test(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
};
const poor = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.offsetParent || node.disabled || node.closest(".visually-hidden")) continue;
  const [a, b] = [luminance(getComputedStyle(node).color), luminance(background(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push(`${node.tagName} "${node.textContent.trim().slice(0, 20)}" ${ratio.toFixed(2)}`);
}
return poor;
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_have_contrast_and_controls_have_names(demo: Page, dark: bool):
    demo.resize(1280, 900, dark=dark)
    assert demo.script(CONTRAST) == []
    controls = demo.driver.find_elements(By.CSS_SELECTOR, "button, input, canvas")
    assert [control.get_attribute("id") for control in controls if not control.accessible_name] == []


# The listening test


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


def first_recording(page: Page, url: str) -> None:
    """Come anew and pass the pages before the first trial."""
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
