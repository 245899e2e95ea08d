"""Take the pictures of docs/images anew: `python tests/web/take_screenshots.py MODEL docs/images`.

Names after it take some of them only: demo, offline, live, listening, choice, report.
"""

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
from dtm_codec.cli.web import other_codecs
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.report import make_report
from dtm_codec.evaluation.runner import evaluate
from dtm_codec.models.hub import LIVE_MODEL
from dtm_codec.ratings.preferences import Choice
from dtm_codec.speech.audio import read_audio, sample_path, write_audio
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo
from dtm_codec.web.listening.definition import Definition
from dtm_codec.web.listening.prepared import prepare
from dtm_codec.web.listening.routes import RunningTest
from dtm_codec.web.offline.app import create_page_app
from dtm_codec.web.offline.folder import page_files

SIZES = {"desktop": (1280, 900, 1.0), "phone": (390, 844, 2.0)}
LAPTOP = (1280, 720, 1.0)
SYSTEMS = {"VFR 800 bps": 0.1, "FFR 800 bps": 0.3, "VFR 400 bps": 0.7, "FFR 400 bps": 1.2}
"""Stand-ins with noise: the pictures show the page, not a result."""


def demo(page: Page, model: str, out: Path) -> None:
    with served(create_app(Demo(DTMCodec.from_pretrained(model), others=other_codecs()))) as url:
        for name, (width, height, scale) in (SIZES | {"desktop": LAPTOP}).items():
            page.resize(width, height, scale=scale)
            page.open(url)
            page.until(lambda: page["download"].is_enabled(), "nothing was encoded")
            settle(page)
            page.screenshot(out / f"demo-{name}.png", whole=name == "phone")
        page.open(url)
        page.until(lambda: page["download"].is_enabled(), "nothing was encoded")
        page.resize(*LAPTOP[:2], dark=True)
        page["zoom-in"].click()
        page["zoom-in"].click()
        page.press("l")
        page["play"].click()
        page.until(lambda: page.number("time") > 0.8, "it does not play")
        page.screenshot(out / "demo-zoomed-dark.png", whole=False)


def offline(page: Page, model: str, out: Path) -> None:
    """The page that computes in the browser."""
    with served(create_page_app(page_files(model))) as url:
        for name, (width, height, scale) in SIZES.items():
            page.resize(width, height, scale=scale)
            page.open(url)
            page.until(lambda: page["download"].is_enabled(), "nothing was encoded", patience=200)
            settle(page)
            page.screenshot(out / f"offline-{name}.png")


def settle(page: Page) -> None:
    """Encode once more: the first time, the machine is still warming up."""
    for key in (Keys.ARROW_UP, Keys.ARROW_DOWN):
        page["bitrate"].send_keys(key)
        page.until(lambda: page["stale"].is_displayed(), "the slider does nothing")
        page.until(lambda: not page["stale"].is_displayed(), "nothing was encoded")
    page.script("document.activeElement.blur()")


def live(out: Path) -> None:
    """A call with the bundled live model, on a machine that does nothing else."""
    codec = DTMCodec.from_pretrained(LIVE_MODEL)
    with tempfile.TemporaryDirectory() as temporary:
        microphone = Path(temporary) / "speech.wav"
        write_audio(microphone, np.tile(read_audio(sample_path())[0], 4), 16_000)
        with browser(microphone=microphone) as page, served(create_app(Demo(codec))) as url:
            for name, (width, height, scale) in (SIZES | {"desktop": LAPTOP}).items():
                page.resize(width, height, scale=scale)
                page.open("about:blank")
                page.open(f"{url}/#live")
                page.until(lambda: page["call"].is_enabled(), "no call can be made")
                page["call-loss"].send_keys(*[Keys.ARROW_UP] * 10)
                page["call"].click()
                page.until(
                    lambda: page.text("call-packets").isdecimal() and page.number("call-packets") > 90, "no sound"
                )
                page.script("document.activeElement.blur()")
                page.screenshot(out / f"live-{name}.png", whole=name == "phone")
                page["call"].click()


def prepared(folder: Path, **options: object) -> RunningTest:
    (folder / "original").mkdir()
    audio, rate = read_audio(sample_path())
    for i, start in enumerate(range(0, 60_000, 15_000)):
        write_audio(folder / "original" / f"{i}.wav", audio[start : start + 50_000], rate)
    sources = {name: str(noise) for name, noise in SYSTEMS.items()}
    title = "Does an adaptive rate sound better?"
    definition = Definition(str(folder / "original"), sources, title, seed=1, **options)
    prepare(definition, folder / "test", lambda noise: lambda x, rate: (worse(x, float(noise)), rate))
    return RunningTest(folder / "test")


def listening(page: Page, out: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        running = prepared(Path(temporary))
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


def choice(page: Page, out: Path) -> None:
    """A page of an A/B/X test, and results of one."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        running = prepared(folder, method="abx", pairs=(("VFR 800 bps", "FFR 800 bps"), ("VFR 400 bps", "FFR 400 bps")))
        rng = np.random.default_rng(0)
        for name in ("Ada", "Bo", "Chen", "Dana", "Eli", "Fay", "Gus", "Hana"):
            _, listener = running.store.add_listener(name)
            for utterance in running.test.utterances:
                for (first, second), skill in zip(running.test.pairs, (0.6, 0.9), strict=True):
                    told = (first, second)[rng.random() > skill]
                    running.store.choose(listener, Choice(listener.label, utterance, first, second, first, told))
        with served(create_app(listening=running, admin_token=ADMIN)) as url:
            for name, (width, height, scale) in SIZES.items():
                page.resize(width, height, scale=scale)
                enter(page, url)
                for key in "abx":
                    page.press(key)
                page["answers"].find_elements("css selector", "label")[0].click()
                page.screenshot(out / f"choice-{name}.png", whole=name == "desktop")
                page.script("localStorage.clear()")
                page.open(f"{url}/results#token={ADMIN}")
                page.shows("results")
                page.screenshot(out / f"preferences-{name}.png")
        running.store.close()


def report(page: Page, model: str, out: Path) -> None:
    """Codecs on the bundled recordings."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        systems = [f"dtm:{model}?bitrate=1000", f"dtm:{model}?bitrate=700", "codec2:1300", "codec2:700C", "opus:6"]
        metrics = ["pesq", "stoi", "mcd", "f0-rmse", "vuv"]
        data = read_data(sample_path().parent)
        evaluate([*systems, "identity"], metrics, data, folder / "run", source="the bundled samples", save_audio=True)
        *_, file = make_report([folder / "run"], folder / "report")
        for name, (width, height, scale) in SIZES.items():
            page.resize(width, height, scale=scale)
            page.open(file.as_uri())
            ready = "return document.querySelectorAll('.example:not([data-ready])').length === 0"
            page.until(lambda r=ready: page.script(r), "the examples do not load")
            page.driver.find_elements("css selector", ".hear")[1].click()
            page.until(lambda: page.script("return document.querySelector('.play').textContent") == "Pause", "no sound")
            page.script("document.querySelector('.play').click()")
            page.screenshot(out / f"report-{name}.png", whole=name == "desktop")


def enter(page: Page, url: str) -> None:
    """To the training page."""
    page.open(url)
    page.shows("welcome")
    page["name"].send_keys(Keys.ENTER)
    page.shows("volume")
    page["volume-play"].click()
    page.until(lambda: page["volume-done"].is_enabled(), "it does not play")
    page["volume-done"].click()
    page.until(lambda: page.text("page-title") == "Training" and page["page"].is_displayed(), "no training")


def take(page: Page, url: str) -> None:
    """To the first trial, some of it rated."""
    enter(page, url)
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
    wanted = sys.argv[3:] or ("demo", "offline", "live", "listening", "choice", "report")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as shots, browser() as chromium:
        for what in wanted:
            {
                "demo": lambda out: demo(chromium, model, out),
                "live": live,
                "offline": lambda out: offline(chromium, model, out),
                "listening": lambda out: listening(chromium, out),
                "choice": lambda out: choice(chromium, out),
                "report": lambda out: report(chromium, model, out),
            }[what](Path(shots))
        for path in sorted(Path(shots).glob("*.png")):
            Image.open(path).convert("RGB").quantize(256).save(target / path.name, optimize=True)
