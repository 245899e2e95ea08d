"""Real-time factors of the page in Chromium, with one thread and with several, beside Python in the same rounds.

    python benchmarks/browser.py [--model small] [--seconds 10] [--rounds 5] [--threads 1 2]
    python benchmarks/browser.py --data test.jsonl [--utterances 20]

Every round times each once, so that a machine that slows down slows all of them. Time on the clock and processor time
(of all of Chromium's processes), per second of speech, medians over the rounds. Needs Chromium, its driver and
Selenium.

With --data: does the page encode and decode as Python does? Every n-th utterance of the set, so that there are as many
as asked for, at 800 bits a second.
"""

from __future__ import annotations

import argparse
import base64
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

import browser_support
from browser_support import Page, browser
from web_support import served

from dtm_codec import DTMCodec
from dtm_codec.evaluation.data import read_data
from dtm_codec.speech.audio import Samples, read_audio, sample_path
from dtm_codec.web.offline.app import create_page_app
from dtm_codec.web.offline.folder import page_files

BITRATE = 800
browser_support.PATIENCE = 600

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

COMPARE = """
const bytes = Uint8Array.from(atob("{audio}"), (letter) => letter.charCodeAt(0));
const argument = {{ clip: {number}, samples: new Float32Array(bytes.buffer), bitrate: {bitrate} }};
const {{ dtm, samples: decoded }} = await ask(workers[{threads}], {number}, "encode", argument);
const text = (array) => {{
  let letters = "";
  const raw = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  for (const byte of raw) letters += String.fromCharCode(byte);
  return btoa(letters);
}};
return [text(dtm), text(decoded)];
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
def opened(model: str, seconds: int, threads: list[int]) -> Iterator[Page]:
    """A page with a worker for each number of threads."""
    with served(create_page_app(page_files(model))) as url, browser() as page:
        page.open(f"{url}/page.json")
        assert page.script("return crossOriginIsolated")
        for count in threads:
            answer = page.promise(START.format(threads=count, seconds=seconds))
            assert answer == count, answer
        yield page


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


def speed(options: argparse.Namespace) -> None:
    audio = np.resize(read_audio(sample_path(), 16_000)[0], 16_000 * options.seconds)
    with opened(options.model, options.seconds, options.threads) as page:
        systems = {f"Chromium, wasm, {count} threads": timed(page, count) for count in options.threads}
        for backend in ("torch", "onnx"):
            codec = DTMCodec.from_pretrained(options.model, backend=backend)
            systems[f"Python, {backend}"] = in_python(codec, audio)
        measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in systems}
        for number in range(-1, options.rounds):  # the first is the warm-up
            for name, run in systems.items():
                times = run(number)
                if number >= 0:
                    measured[name].append(times)
    title = f"{options.model}, {options.seconds} s of speech, {options.rounds} rounds"
    table = Table(title=title, title_justify="left")
    table.add_column("seconds per second of speech")
    for column in ("encode", "decode", "processor, both"):
        table.add_column(column, justify="right")
    for name, rows in measured.items():
        medians = (statistics.median(row[i] for row in rows) / options.seconds for i in range(3))
        table.add_row(name, *(f"{value:.3f}" for value in medians))
    Console().print(table)


def equality(options: argparse.Namespace) -> None:
    utterances = read_data(options.data)
    chosen = utterances[:: -(-len(utterances) // options.utterances)]
    codec, threads = DTMCodec.from_pretrained(options.model), options.threads[0]
    steps = other_steps = tokens = other_codes = 0
    audio_difference = 0.0
    with opened(options.model, 1, [threads]) as page:
        for number, utterance in enumerate(chosen, start=2):
            audio, _ = utterance.read(codec.config.sample_rate)
            sent = base64.b64encode(audio.astype("<f4").tobytes()).decode()
            answer: Any = page.promise(COMPARE.format(audio=sent, number=number, bitrate=BITRATE, threads=threads))
            assert isinstance(answer, list), answer
            dtm, decoded = map(base64.b64decode, answer)
            theirs, ours = codec.from_bytes(dtm), codec.encode(audio, codec.config.sample_rate, bitrate=BITRATE)
            steps += ours.mask.size
            other_steps += int(np.count_nonzero(theirs.mask != ours.mask))
            tokens += ours.codes.size
            codes = dict(zip(theirs.positions.tolist(), theirs.codes.tolist(), strict=True))
            pairs = zip(ours.positions.tolist(), ours.codes.tolist(), strict=True)
            other_codes += sum(codes.get(position) != code for position, code in pairs)
            difference = np.abs(np.frombuffer(decoded, "<f4") - codec.decode(theirs)).max()
            audio_difference = max(audio_difference, float(difference))
    print(f"{len(chosen)} utterances of {options.data.name}, {steps / codec.config.frame_rate:.0f} s")
    print(f"steps kept by one alone: {other_steps} of {steps}")
    print(f"tokens that differ: {other_codes} of {tokens}")
    print(f"largest difference of a decoded sample: {audio_difference:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--data", type=Path, help="a manifest or folder: compare instead of timing")
    parser.add_argument("--utterances", type=int, default=20)
    options = parser.parse_args()
    equality(options) if options.data else speed(options)


if __name__ == "__main__":
    main()
