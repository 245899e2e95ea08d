from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.dataset
import pytest
import soundfile
import torch

from dtm_codec import DTMCodec, QuantizerConfig, preset
from dtm_codec.audio import write_audio
from dtm_codec.corpus import local, tokenize
from dtm_codec.corpus.plan import Shard
from dtm_codec.corpus.worker import Job, Result, ShardWorker

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


@pytest.fixture(scope="session")
def speech() -> list[Speech]:
    """Recordings of many lengths; one at another sample rate, some without text or speaker."""
    recordings = [
        Speech(f"{i % 3}/utt{i:02d}", recording(i, 0.1 + 0.17 * i), SAMPLE_RATE, f"text {i}", f"s{i % 3}")
        for i in range(11)
    ]
    recordings[4] = replace(recordings[4], audio=recording(4, 0.7, 22_050), sample_rate=22_050)
    recordings[5] = replace(recordings[5], text=None, speaker=None)
    return sorted(recordings, key=lambda r: r.name)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with a tau of its own."""
    torch.manual_seed(0)
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    config = replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **sizes)
    codec = DTMCodec(replace(config, quantizer=QuantizerConfig(codebook_size=256)))
    codec.tau.fill_(codec.calibrated_tau(torch.from_numpy(recording(1, 1.0))[None]))
    folder = tmp_path_factory.mktemp("model") / "tiny"
    codec.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def codec(tiny_model: Path) -> DTMCodec:
    return DTMCodec.from_pretrained(tiny_model)


@pytest.fixture
def manifest(tmp_path: Path, speech: list[Speech]) -> Path:
    """The recordings as files, with a manifest beside them."""
    return write_manifest(tmp_path / "corpus", speech)


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


def run_inline(job: Job, shards: Sequence[Shard], workers: int) -> Iterator[Result]:
    """In place of `local.run`: shards are done here, one after the other."""
    yield from map(ShardWorker(job), shards)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No time is lost on starting worker processes."""
    monkeypatch.setattr(local, "run", run_inline)
    with one_thread():
        yield


@pytest.fixture
def rows() -> Callable[[Path], list[dict[str, Any]]]:
    """The rows of a tokenized corpus, read by pyarrow alone."""

    def read(out: Path) -> list[dict[str, Any]]:
        return pyarrow.dataset.dataset(out / "data").to_table().to_pylist()

    return read


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*out.glob("data/*"), out / "metadata.json"]}


@pytest.fixture(scope="session")
def clips(tmp_path_factory) -> Path:
    """Sixty clips, enough for a kill to come between two shards."""
    folder = tmp_path_factory.mktemp("clips")
    for index in range(60):
        write_audio(folder / f"{index:03d}.wav", recording(index % 7, 0.5 + 0.02 * index), SAMPLE_RATE)
    return folder


@pytest.fixture(scope="session")
def whole(clips, tmp_path_factory, tiny_model) -> dict[str, bytes]:
    """What an undisturbed run in this process writes."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch, one_thread():
        patch.setattr(local, "run", run_inline)
        return files(tokenize(clips, out, model=tiny_model, shard_size=2).folder)


def children(pid: int) -> set[int]:
    """Processes that `pid` has started, and theirs."""
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
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
