"""The live tab in a real browser, with a microphone that hears a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from browser_support import CONTRAST, SMALL, Page, browser, nameless
from selenium.webdriver.common.keys import Keys
from web_support import served

from dtm_codec import DTMCodec
from dtm_codec.speech.audio import write_audio
from dtm_codec.web import live
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo

EAR = """
window.heard = { seconds: 0, peak: 0, spoken: 0 };
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  if (data instanceof ArrayBuffer) heard.spoken += data.byteLength / 2 / heard.rate;
  else heard.rate = JSON.parse(data).sample_rate ?? heard.rate;
  return send.call(this, data);
};
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (...when) {
  heard.seconds += this.buffer.duration;
  heard.peak = Math.max(heard.peak, ...this.buffer.getChannelData(0).map(Math.abs));
  return start.apply(this, when);
};
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory, speech) -> Iterator[Page]:
    microphone = tmp_path_factory.mktemp("microphone") / "speech.wav"
    write_audio(microphone, np.tile(speech, 4), 16_000)
    with browser(microphone=microphone) as page:
        yield page


@pytest.fixture(scope="module")
def url(live_codec: DTMCodec) -> Iterator[str]:
    with served(create_app(Demo(live_codec))) as url:
        yield url


def test_speech_goes_out_and_comes_back(page: Page, url: str):
    page.resize(1280, 720)
    page.open(f"{url}/#live")
    page.until(lambda: page["call"].is_enabled(), f"no call can be made; {page.text('message')}")
    page.script(EAR)
    by_construction = page.number("call-latency")
    page["call"].click()
    page.until(lambda: page.text("call-packets").isdecimal() and page.number("call-packets") > 30, "no packets")
    assert page.text("call").strip() == "Stop"
    assert page.script("return heard.seconds") > 1
    assert page.script("return heard.peak") > 0
    trip = page.number("call-trip")
    assert by_construction - 40 < trip < 20_000, "what comes back later than it can"
    assert 600 < page.number("call-rate") < 1500
    assert page.number("call-lost") == 0

    page["call-bitrate"].send_keys(Keys.HOME)
    page.until(lambda: 0 < page.number("call-rate") < 650, "the slider does nothing")
    for _ in range(30):
        page["call-loss"].send_keys(Keys.ARROW_UP)
    assert page.text("call-loss-value") == "30"
    page.until(lambda: page.number("call-lost") > 3, "nothing is lost")

    assert page["call-loss"].get_attribute("max") == "50"
    page["call-loss"].send_keys(Keys.HOME)
    packets = page.number("call-packets")
    page.until(lambda: page.number("call-packets") > packets + 5, "no more packets")
    page["call"].click()
    page.until(lambda: page.text("call").strip() == "Speak", "it goes on after Stop")
    assert page.script("return heard.seconds") == pytest.approx(page.script("return heard.spoken"), abs=0.01)
    sent = page.text("call-packets")
    page.promise("await new Promise((resolve) => setTimeout(resolve, 300));")
    assert page.text("call-packets") == sent, "it goes on after Stop"
    assert page.complaints() == []


def test_an_end_that_does_not_come_can_be_cut_off(page: Page, url: str, monkeypatch: pytest.MonkeyPatch):
    enough = threading.Event()
    monkeypatch.setattr(live.Call, "finish", lambda call: enough.wait(60) and [])
    page.open("about:blank")
    page.open(f"{url}/#live")
    page.until(lambda: page["call"].is_enabled(), "no call can be made")
    page["call"].click()
    page.until(lambda: page.text("call-packets").isdecimal() and page.number("call-packets") > 1, "no packets")
    page["call"].click()
    page.until(lambda: "Stop cuts it off" in page.text("call-hint"), "nothing tells that the end is awaited")
    assert page.text("call").strip() == "Stop"
    page["call"].click()
    page.until(lambda: page.text("call").strip() == "Speak", "it goes on after the second Stop")
    assert "headphones" in page.text("call-hint")
    enough.set()


def test_a_call_that_the_server_ends_says_why(page: Page, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "MAX_SECONDS", 0.5)
    page.open("about:blank")
    page.open(f"{url}/#live")
    page.until(lambda: page["call"].is_enabled(), "no call can be made")
    page["call"].click()
    page.until(lambda: "the call lasts 0.5 s" in page.text("message"), "no message")
    page.until(lambda: page.text("call").strip() == "Speak", "it is still shown as going on")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_tab_fits_a_phone_and_has_contrast(page: Page, url: str, dark: bool):
    page.resize(390, 844, scale=2, dark=dark)
    page.open("about:blank")
    page.open(f"{url}/#live")
    page.until(lambda: page["call"].is_enabled(), "no call can be made")
    assert page.script("return document.documentElement.scrollWidth") <= 390
    assert page.script(SMALL) == []
    assert page.script(CONTRAST) == []
    assert nameless(page) == []


def test_a_model_that_cannot_says_what_can(page: Page, codec: DTMCodec):
    page.resize(1280, 720)
    with served(create_app(Demo(codec))) as url:
        page.open(url)
        page.until(lambda: page["tab-live"].is_displayed(), "no tab")
        page["tab-live"].click()
        page.until(lambda: "dtm-codec serve without --model" in page.text("live-obstacle"), "no advice")
        assert not page["call"].is_enabled()
        page["tab-recording"].click()
        assert page["recording"].is_displayed()
        assert not page["live"].is_displayed()
