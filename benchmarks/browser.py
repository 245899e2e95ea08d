"""Real-time factors of the page in Chromium, with one thread and with several, beside Python in the same rounds.

    python benchmarks/browser.py [--model small] [--seconds 10] [--rounds 5] [--threads 1 2]

Every round times each once, so that a machine that slows down slows all of them. Time on the clock and processor time
(of all of Chromium's processes), per second of speech, medians over the rounds. Needs Chromium, its driver and
Selenium.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "web"))

from browser_support import Page, browser
from web_support import served

from dtm_codec import DTMCodec
from dtm_codec.speech.audio import Samples, read_audio, sample_path
from dtm_codec.web.offline.app import create_page_app
from dtm_codec.web.offline.folder import page_files

BITRATE = 800

START = """
window.ask = (worker, id, call, argument) => new Promise((resolve, reject) => {{
  const listen = ({{ data }}) => {{
    if (data.id !== id || "share" in data) return;
    worker.removeEventListener("message", listen);
    if ("error" in data) reject(new Error(data.error));
    else resolve(data.value);
  }};
  worker.addEventListener("message", listen);
  worker.postMessage({{ id, call, argument }});
}});
window.workers ??= {{}};
const page = await (await fetch("page.json")).json();
const worker = new Worker("static/worker.js", {{ type: "module" }});
const {{ threads }} = await ask(worker, 0, "open", {{ ...page, threads: {threads} }});
window.workers[{threads}] = worker;
const {{ readAudio }} = await import(new URL("static/codec/audio.js", location).href);
const speech = await readAudio(await (await fetch("sample.flac")).arrayBuffer(), page.sample_rate);
window.samples = Float32Array.from({{ length: {seconds} * page.sample_rate }}, (_, i) => speech[i % speech.length]);
return threads;
"""

ROUND = """
const {{ ms }} = await ask(workers[{threads}], {number}, "encode", {{ clip: {number}, samples, bitrate: {bitrate} }});
return [ms.encode / 1000, ms.decode / 1000];
"""

Timed = Callable[[int], tuple[float, float, float]]
"""Number of the round -> seconds to encode, to decode, and of the processor."""


def cpu_seconds(root: int) -> float:
    """Processor time of a process and all below it, as far as they still run."""
    parents, used = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(entry.parent.name)], used[int(entry.parent.name)] = (
            int(fields[1]),
            int(fields[11]) + int(fields[12]),
        )

    def below(pid: int | None) -> bool:
        while pid not in (None, 0, root):
            pid = parents.get(pid)
        return pid == root

    return sum(ticks for pid, ticks in used.items() if below(pid)) / 100


@contextmanager
def in_chromium(model: str, seconds: int, threads: list[int]) -> Iterator[dict[str, Timed]]:
    with served(create_page_app(page_files(model))) as url, browser() as page:
        page.open(f"{url}/page.json")
        assert page.script("return crossOriginIsolated")
        for count in threads:
            answer = page.promise(START.format(threads=count, seconds=seconds))
            assert answer == count, answer
        yield {f"Chromium, wasm, {count} threads": timed(page, count) for count in threads}


def timed(page: Page, threads: int) -> Timed:
    driver = page.driver.service.process.pid

    def run(number: int) -> tuple[float, float, float]:
        before = cpu_seconds(driver)
        answer: Any = page.promise(ROUND.format(threads=threads, number=number + 2, bitrate=BITRATE))
        assert isinstance(answer, list), answer
        return answer[0], answer[1], cpu_seconds(driver) - before

    return run


def in_python(codec: DTMCodec, audio: Samples) -> Timed:
    def run(number: int) -> tuple[float, float, float]:
        start, cpu = time.perf_counter(), time.process_time()
        encoded = codec.encode(audio, 16_000, bitrate=BITRATE)
        codec.to_bytes(encoded)
        middle = time.perf_counter()
        codec.decode(encoded)
        return middle - start, time.perf_counter() - middle, time.process_time() - cpu

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    audio = np.resize(read_audio(sample_path(), 16_000)[0], 16_000 * options.seconds)
    with in_chromium(options.model, options.seconds, options.threads) as systems:
        for backend in ("torch", "onnx"):
            codec = DTMCodec.from_pretrained(options.model, backend=backend)
            systems[f"Python, {backend}"] = in_python(codec, audio)
        measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in systems}
        for number in range(-1, options.rounds):  # the first is the warm-up
            for name, run in systems.items():
                times = run(number)
                if number >= 0:
                    measured[name].append(times)
    table = Table(
        title=f"{options.model}, {options.seconds} s of speech, {options.rounds} rounds", title_justify="left"
    )
    table.add_column("seconds per second of speech")
    for column in ("encode", "decode", "processor, both"):
        table.add_column(column, justify="right")
    for name, rows in measured.items():
        medians = (statistics.median(row[i] for row in rows) / options.seconds for i in range(3))
        table.add_row(name, *(f"{value:.3f}" for value in medians))
    Console().print(table)


if __name__ == "__main__":
    main()
