"""A small corpus, and a look at processes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import torch

from dtm_codec.corpus.plan import Shard
from dtm_codec.corpus.worker import FinishedShard, ShardWorker

SAMPLE_RATE = 16_000


@dataclass(frozen=True)
class Speech:
    """One recording of the test corpus."""

    name: str
    audio: npt.NDArray[np.float32]
    sample_rate: int
    text: str | None
    speaker: str | None

    @property
    def wav(self) -> bytes:
        buffer = io.BytesIO()
        soundfile.write(buffer, self.audio, self.sample_rate, format="WAV", subtype="PCM_16")
        return buffer.getvalue()


def recording(index: int, seconds: float, sample_rate: int = SAMPLE_RATE) -> npt.NDArray[np.float32]:
    """A tone that glides and beats, so that some frames change more than others."""
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    phase = 2 * np.pi * (150 + 40 * index) * time + 5 * np.sin(2 * np.pi * 1.5 * time)
    noise = np.random.default_rng(index).standard_normal(time.size) * 0.05
    return ((np.sin(phase) * 0.3 + noise) * (np.sin(2 * np.pi * 3 * time) > -0.3)).astype(np.float32)


def write_manifest(folder: Path, speech: list[Speech]) -> Path:
    lines = []
    for recorded in speech:
        path = folder / f"{recorded.name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(recorded.wav)
        record = {"audio_filepath": f"{recorded.name}.wav", "text": recorded.text, "speaker": recorded.speaker}
        lines.append(json.dumps(record) + "\n")
    (folder / "manifest.jsonl").write_text("".join(lines))
    return folder / "manifest.jsonl"


@contextmanager
def one_thread() -> Iterator[None]:
    """A worker sets its process's threads; put them back."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def run_inline(
    start: Callable[[], ShardWorker], shards: Sequence[Shard], processes: int, threads: int
) -> Generator[FinishedShard, None, None]:
    """In place of `run_in_processes`: shards are done here, one after the other."""
    torch.set_num_threads(threads)
    yield from map(start(), shards)


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*out.glob("data/*"), out / "metadata.json"]}


def children(pid: int) -> set[int]:
    """Processes that `pid` has started, and theirs."""
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile
            for child in task.read_text().split():
                found |= {int(child)} | children(int(child))
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that run and are no zombies."""
    return {pid for pid in pids if (state := state_of(pid)) and state != "Z"}


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
