"""A real Chromium, driven by Selenium; tests skip where there is none."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver")

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.remote.webdriver import WebDriver  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

PATIENCE = 40
"""Seconds to wait for anything: a shared machine may be slow."""


SMALL = """
const controls = [...document.querySelectorAll("button, input[type=range]")].filter((e) => e.offsetParent);
return controls.filter((e) => e.offsetHeight < 30).map((e) => e.id);
"""
"""Controls that are too small to touch."""

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
"""Texts that are hard to read on their background."""


WIDE = """
const width = arguments[0];
const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > width);
const { scrollWidth } = document.documentElement;
return scrollWidth > width ? [scrollWidth, ...wide.map((e) => `${e.tagName} ${e.id} ${e.className}`)] : [];
"""
"""Elements that reach beyond a width, if the page does."""


def found(*names: str) -> str:
    path = next((path for name in names if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"needs {names[0]}")
    return path


class Page:
    """A browser with the few things that tests do."""

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    def __getitem__(self, name: str) -> WebElement:
        return self.driver.find_element(By.ID, name)

    def text(self, name: str) -> str:
        return str(self[name].get_property("textContent"))

    def number(self, name: str) -> float:
        return float(self.text(name).split()[0].replace(",", ""))

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def promise(self, code: str) -> Any:
        """Run the body of an async function in the page."""
        wrapped = f"const done = arguments[0]; (async () => {{ {code} }})().then(done, (e) => done(`failed: ${{e}}`));"
        self.driver.set_script_timeout(PATIENCE)
        return self.driver.execute_async_script(wrapped)

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def until(self, condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
        return WebDriverWait(self.driver, patience, poll_frequency=0.05).until(lambda _: condition(), what)

    def shows(self, name: str) -> Any:
        return self.until(lambda: self[name].is_displayed(), f"{name} is not shown; {self.text('message')}")

    def resize(self, width: int, height: int, *, scale: float = 1, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """All of the page, or what fits the window."""
        options = {}
        if whole:
            size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": whole, **options})
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """What the console says since the last call: errors, and refusals by the content security policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


def nameless(page: Page) -> list[str]:
    """Controls on show that a screen reader could only call "button"."""
    controls = page.driver.find_elements(By.CSS_SELECTOR, "button, input, select, canvas, meter")
    shown = [control for control in controls if control.is_displayed()]
    assert len(shown) > 3
    return [control.get_attribute("outerHTML") or "" for control in shown if not control.accessible_name]


@contextmanager
def browser(downloads: Path | None = None, microphone: Path | None = None, *, cut_off: bool = False) -> Iterator[Page]:
    """A Chromium without a window. `microphone`: a WAV file that its microphone hears; `cut_off`: it finds this machine
    alone."""
    options = webdriver.ChromeOptions()
    options.binary_location = found("chromium", "chromium-browser", "google-chrome")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--mute-audio",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        *(["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"] if cut_off else []),
        *([f"--use-file-for-fake-audio-capture={microphone}"] if microphone else []),
    ):
        options.add_argument(argument)
    if downloads:
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options=options, service=Service(found("chromedriver")))
    try:
        page = Page(driver)
        page.resize(1280, 900)
        yield page
    finally:
        driver.quit()
