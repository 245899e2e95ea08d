"""Take the pictures of docs/images anew: `python tests/web/take_screenshots.py MODEL docs/images`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from browser_support import Page, browser
from PIL import Image
from selenium.webdriver.common.keys import Keys
from web_support import ADMIN, served, worse

from dtm_codec import DTMCodec
from dtm_codec.speech.audio import read_audio, sample_path, write_audio
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo
from dtm_codec.web.listening.definition import Definition
from dtm_codec.web.listening.prepared import prepare
from dtm_codec.web.listening.routes import RunningTest

SIZES = {"desktop": (1280, 900, 1.0), "phone": (390, 844, 2.0)}
SYSTEMS = {"VFR 800 bps": 0.1, "FFR 800 bps": 0.3, "VFR 400 bps": 0.7, "FFR 400 bps": 1.2}
"""Stand-ins with noise: the pictures show the page, not a result."""


def demo(page: Page, model: str, out: Path) -> None:
    with served(create_app(Demo(DTMCodec.from_pretrained(model), model))) as url:
        for name, (width, height, scale) in SIZES.items():
            page.resize(width, height, scale=scale)
            page.open(url)
            page.until(lambda: page["download"].is_enabled(), "nothing was encoded")
            settle(page)
            page.screenshot(out / f"demo-{name}.png")
        page.resize(*SIZES["desktop"][:2], dark=True)
        page["zoom-in"].click()
        page["zoom-in"].click()
        page.press("l")
        page["play"].click()
        page.until(lambda: page.number("time") > 0.8, "it does not play")
        page.screenshot(out / "demo-zoomed-dark.png")


def settle(page: Page) -> None:
    """Encode once more: the first time, the machine is still warming up."""
    for key, rate in ((Keys.ARROW_UP, "810 "), (Keys.ARROW_DOWN, "800 ")):
        page["bitrate"].send_keys(key)
        page.until(lambda r=rate: page.text("caption-decoded").startswith(r), "the slider does nothing")
    page.script("document.activeElement.blur()")


def listening(page: Page, out: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "original").mkdir()
        audio, rate = read_audio(sample_path())
        for i, start in enumerate(range(0, 60_000, 15_000)):
            write_audio(folder / "original" / f"{i}.wav", audio[start : start + 50_000], rate)
        sources = {name: str(noise) for name, noise in SYSTEMS.items()}
        definition = Definition(folder / "original", sources, "Does an adaptive rate sound better?", seed=1)
        prepare(definition, folder / "test", lambda noise: lambda x, rate: (worse(x, float(noise)), rate))
        running = RunningTest(folder / "test")
        fill(running)
        with served(create_app(listening=running, admin_token=ADMIN)) as url:
            for name, (width, height, scale) in SIZES.items():
                page.resize(width, height, scale=scale)
                take(page, url)
                page.screenshot(out / f"listening-{name}.png", whole=name == "desktop")
                page.script("localStorage.clear()")
                page.open(f"{url}/results#token={ADMIN}")
                page.shows("results")
                page.screenshot(out / f"results-{name}.png")
        running.store.close()


def take(page: Page, url: str) -> None:
    """To the first trial, some of it rated."""
    page.open(url)
    page.shows("welcome")
    page["name"].send_keys(Keys.ENTER)
    page.shows("volume")
    page["volume-play"].click()
    page.until(lambda: page["volume-done"].is_enabled(), "it does not play")
    page["volume-done"].click()
    page.until(lambda: page.text("page-title") == "Training" and page["page"].is_displayed(), "no training")
    for index in range(1, 7):
        page.press(str(index))
        page.press(Keys.PAGE_UP)
    page.press(Keys.ENTER)
    page.until(lambda: page.text("page-title").startswith("Recording 1"), "no trial")
    for index, below in enumerate((3, 6, 0, 1), start=1):
        page.press(str(index))
        page.press(Keys.END, *[Keys.PAGE_DOWN] * below, *[Keys.ARROW_DOWN] * (below and 4))
    page.press("5")
    page.until(lambda: page["stimuli"].is_displayed(), "no stimuli")


def fill(running: RunningTest) -> None:
    """Ratings of twelve listeners who hear what they should, and of one who does not."""
    rng = np.random.default_rng(0)
    means = dict(zip(running.test.systems, (97, 31, 82, 76, 68, 61), strict=True))
    for name in ("Ada", "Bo", "Chen", "Dana", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kim", "Lea", "Max"):
        _, listener = running.store.add_listener(name)
        bias = rng.normal(0, 4)
        for utterance in running.test.utterances:
            for system, mean in means.items():
                value = rng.uniform(30, 90) if name == "Max" else rng.normal(mean + bias * (mean < 90), 7)
                floor = 90 if system == "reference" and name != "Max" else 0
                running.store.rate(listener, utterance, system, int(np.clip(round(value), floor, 100)))


if __name__ == "__main__":
    model, target = sys.argv[1], Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        demo(chromium, model, target)
        listening(chromium, target)
    for path in target.glob("*.png"):
        Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)
