"""The codec in a browser: `page:MODEL[?bitrate=BPS][&threads=N]`, the page of `dtm-codec serve --static` in Chromium.

Speech goes to the page's worker and comes back as the bytes of a .dtm file and as samples. Time is that of the worker
and its threads, so what Selenium takes to carry them does not count.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...bitstream.container import inspect
from ...errors import ConfigError
from ...metrics.base import SAMPLE_RATE
from ...specs import Spec, positive_number, whole_number
from ...speech.audio import Samples
from ...system.optional import import_optional
from .base import Coded, System, fit, peak_mb
from .programs import ProgramError

PATIENCE_S = 600
"""For one answer of the page."""

_OPEN = """
const [threads] = arguments;
const worker = new Worker("static/worker.js", { type: "module" });
let calls = 0;
window.ask = (call, argument) => new Promise((resolve, reject) => {
  const id = calls++;
  const listen = ({ data }) => {
    if (data.id !== id || "share" in data) return;
    worker.removeEventListener("message", listen);
    if ("error" in data) reject(new Error(data.error));
    else resolve(data.value);
  };
  worker.addEventListener("message", listen);
  worker.postMessage({ id, call, argument });
});
window.toBytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
window.toText = (array) => {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
};
window.clips = 0;
const page = await (await fetch("page.json")).json();
return (await ask("open", { ...page, threads })).threads;
"""

_ENCODE = """
const [samples, bitrate] = arguments;
const argument = { clip: clips++, samples: new Float32Array(toBytes(samples).buffer), bitrate };
const { dtm, ms } = await ask("encode", argument);
return [toText(dtm), ms];
"""

_DECODE = """
const { samples, ms } = await ask("decode", toBytes(arguments[0]));
return [toText(samples), ms];
"""


class Page(System):
    def __init__(self, spec: Spec) -> None:
        spec.allow_options(("bitrate", "threads"))
        if spec.argument is None:
            raise ConfigError("page: which model? allowed: page:NAME or page:FOLDER, with ?bitrate=BPS and &threads=N")
        self.model, self.name = spec.argument, spec.text
        self.bitrate = positive_number(spec.options.get("bitrate", "800"), f"{spec.name}: bitrate")
        self.threads = whole_number(spec.options.get("threads", "1"), f"{spec.name}: threads", 1)
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        self.title = f"DTM-Codec {self.model} in Chromium, {self.bitrate:g} bps, {threads}"
        self.series = f"DTM-Codec {self.model} in Chromium"
        self._spent = self._elapsed = 0.0

    @property
    def identity(self) -> str:
        return f"{self._browser.about['model_id']} page {self._browser.about['version']}"

    @property
    def parameters(self) -> int:
        return int(self._browser.about["parameters"])

    @cached_property
    def _browser(self) -> _Browser:
        browser = _Browser(self.model, self.threads)
        rate = browser.about["sample_rate"]
        if rate != SAMPLE_RATE:
            raise ConfigError(f"{self.name}: a model of {rate} Hz; allowed: {SAMPLE_RATE} Hz")
        return browser

    def encode(self, audio: Samples) -> Coded:
        samples = base64.b64encode(audio.astype("<f4").tobytes()).decode()
        dtm = self._timed("encode", _ENCODE, samples, self.bitrate)
        payload = base64.b64decode(dtm)
        info = inspect(payload)
        bits = info.layout.bits(info.tokens, info.steps)
        return Coded(payload, audio.size, bits, info.mask_bits + info.token_bits_written)

    def decode(self, coded: Coded) -> Samples:
        samples = self._timed("decode", _DECODE, base64.b64encode(coded.payload).decode())
        return fit(np.frombuffer(base64.b64decode(samples), "<f4"), coded.num_samples)

    def _timed(self, part: str, code: str, *arguments: Any) -> str:
        """What the page answers. Its worker decodes whatever it has encoded, and says how long it took for each: that
        share of its processor time counts."""
        before = self._browser.worker_seconds()
        text, ms = self._browser.run(code, *arguments)
        spent = self._browser.worker_seconds() - before
        self._spent += spent * ms[part] / sum(ms.values())
        self._elapsed += ms[part] / 1000
        return str(text)

    def clock(self) -> float:
        return self._spent

    def elapsed(self) -> float:
        return self._elapsed

    def peak_mb(self) -> float:
        """Of the largest process of the browser: the page."""
        return max(map(peak_mb, self._browser.processes()))


class _Browser:
    """A server of the page and a Chromium without a window; both end with this object."""

    def __init__(self, model: str, threads: int) -> None:
        webdriver = import_optional("selenium.webdriver", "dev")
        service = import_optional("selenium.webdriver.chrome.service", "dev")
        options = webdriver.ChromeOptions()
        driver = _found("chromedriver")
        options.binary_location = _found("chromium", "chromium-browser", "google-chrome")
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
            options.add_argument(argument)
        command = [sys.executable, "-m", "dtm_codec", "serve", "--static", "--model", model, "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        weakref.finalize(self, _end, server)
        assert server.stdout is not None
        assert server.stderr is not None
        url = server.stdout.readline().rpartition(" ")[2].strip()
        if not url:
            said = server.stderr.read().strip().splitlines()
            raise ProgramError(said[-1] if said else f"page:{model}: the server ended")
        with _one_line_errors():
            self._driver = webdriver.Chrome(options=options, service=service.Service(driver))
            weakref.finalize(self, self._driver.quit)
            self._driver.set_script_timeout(PATIENCE_S)
            self._driver.get(f"{url}page.json")
        self.about: dict[str, Any] = json.loads(self.run('return await (await fetch("page.json")).text();'))
        got = self.run(_OPEN, threads)
        if got != threads:
            raise ConfigError(f"page:{model}: threads = {threads}; the browser has {got}")

    def run(self, code: str, *arguments: Any) -> Any:
        """The body of an async function in the page."""
        wrapped = (
            "const done = arguments[arguments.length - 1];"
            f"(async function () {{ {code} }}).apply(null, [...arguments].slice(0, -1))"
            ".then((value) => done({ value }), (error) => done({ error: String(error) }));"
        )
        with _one_line_errors():
            answer: dict[str, Any] = self._driver.execute_async_script(wrapped, *arguments)
        if "error" in answer:
            raise ProgramError(f"the page says: {answer['error']}")
        return answer["value"]

    def processes(self) -> list[int]:
        """Those that the driver has started, and theirs."""
        found, children = [int(self._driver.service.process.pid)], _children()
        for pid in found:
            found += children.get(pid, ())
        return found

    def worker_seconds(self) -> float:
        """Processor time of all threads that are workers of a page."""
        total = 0
        for pid in self.processes():
            for thread in Path(f"/proc/{pid}/task").glob("*"):
                try:
                    if (thread / "comm").read_text().startswith("DedicatedWorker"):
                        total += int((thread / "schedstat").read_text().split()[0])
                except OSError:
                    continue  # it has just ended
        return total / 1e9


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """A browser that does not start, ends or does not answer."""
    exceptions = import_optional("selenium.common.exceptions", "dev")
    try:
        yield
    except exceptions.WebDriverException as error:
        said = next(iter((error.msg or "").splitlines()), "") or type(error).__name__
        raise ProgramError(f"page: Chromium failed: {said}") from None


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue  # it has just ended
        children.setdefault(parent, []).append(int(entry.parent.name))
    return children


def _end(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.communicate()


def _found(*names: str) -> str:
    path = next((path for name in names if (path := shutil.which(name))), None)
    if path is None:
        raise ProgramError(f"page: needs {names[0]}, which is not installed")
    return path
