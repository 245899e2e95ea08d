"""The demo page in a real browser: seen, heard, operated by keyboard."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_support import CONTRAST, SMALL, Page, browser, nameless
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from web_support import served

from dtm_codec import DTMCodec
from dtm_codec.encoded import Encoded
from dtm_codec.errors import RateError
from dtm_codec.speech.audio import read_audio, sample_path, write_audio
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo, Heard, OtherCodec

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
    with served(create_app(Demo(codec))) as url:
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
    with served(create_app(Demo(codec))) as url:
        page.open(url)
        page.until(lambda: page.text("bitrate-useful") == "trained at 400 – 1000", "no range")
        track = page.script("return document.getElementById('bitrate').style.getPropertyValue('--track')")
        assert track.count("var(--muted)") == 1
        page.until(lambda: page["download"].is_enabled(), "nothing was encoded")


def test_another_codec_is_chosen_and_heard(page: Page, codec: DTMCodec):
    def noise(audio: np.ndarray, _: int) -> Heard:
        return Heard(np.random.default_rng(0).uniform(-0.1, 0.1, audio.size).astype(np.float32), 6000)

    with served(create_app(Demo(codec, others={"noise": OtherCodec("Noise 1", noise)}))) as url:
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
    assert before <= seconds(demo) < before + 5  # what a busy machine takes for two questions
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


def test_a_file_that_breaks_off_is_read_with_a_note(demo: Page, tmp_path: Path):
    audio, rate = read_audio(sample_path("amiable"))
    write_audio(tmp_path / "cut.wav", audio, rate)
    (tmp_path / "cut.wav").write_bytes((tmp_path / "cut.wav").read_bytes()[: 44 + 2 * 24_000])
    demo["file"].send_keys(str(tmp_path / "cut.wav"))
    demo.until(lambda: demo.text("time").endswith("1.5 s"), "its length is not shown")
    said = f"The file breaks off: 1.50 s of {audio.size / rate:.2f} s are there."
    demo.until(lambda: demo.text("source-hint") == said, "no note")


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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_have_contrast_and_controls_have_names(demo: Page, dark: bool):
    demo.resize(1280, 900, dark=dark)
    assert demo.script(CONTRAST) == []
    assert nameless(demo) == []
