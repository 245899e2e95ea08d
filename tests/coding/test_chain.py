"""Long audio: from and to disk, in pieces, in memory that does not grow with it, and with the same result."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtm_codec import DTMCodec
from dtm_codec.coding import chain
from dtm_codec.coding.selection import Choice
from dtm_codec.config import SelectorConfig, preset
from dtm_codec.encoded import Encoded
from dtm_codec.errors import AudioError
from dtm_codec.selectors import ple
from dtm_codec.selectors.ple import PLE
from dtm_codec.speech.audio import read_audio, sample_path, stream_audio, write_audio

LAYERS = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
PIECE = 64


def tiny(name: str, **changes: object) -> DTMCodec:
    torch.manual_seed(0)
    return DTMCodec(replace(preset(name), **(LAYERS | {"dim": 32, "heads": 2, "mlp_hidden": 48} | changes)))


def assert_same(one: Encoded, other: Encoded) -> None:
    """Float ties aside: of a few hundred tokens one may differ."""
    assert (one.num_samples, one.layout) == (other.num_samples, other.layout)
    assert np.sum(one.mask != other.mask) <= 2
    assert one.codes.size != other.codes.size or np.sum(one.codes != other.codes) <= 1


@pytest.mark.parametrize("name", ["s-vfr-50", "s-avgrep", "s-conv", "s-ffr-50", "vfr-50"])
@pytest.mark.parametrize("held", [1, 3 * PIECE, 10**6])
def test_what_is_not_held_is_computed_again_to_the_same_end(
    name: str, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = tiny(name)
    whole = codec.encode(read_audio(sample_path(), 16_000)[0], 16_000)
    audio = codec.decode(whole)
    monkeypatch.setattr(codec.backend, "piece", PIECE)
    monkeypatch.setattr(chain, "Z1_KEPT", 4 * 32 * held)
    monkeypatch.setattr(chain, "BLOCK", 50)
    assert_same(codec.encode_file(sample_path()), whole)
    assert np.abs(np.concatenate(list(codec.decode_blocks(whole))) - audio).max() < 1e-4


@pytest.mark.parametrize("seconds", [2.0, 3.0])
def test_a_file_that_changes_while_it_is_encoded_is_refused(
    tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = tiny("s-vfr-50")
    speech, _ = read_audio(sample_path(), 16_000)
    monkeypatch.setattr(codec.backend, "piece", PIECE)
    monkeypatch.setattr(chain, "Z1_KEPT", 1)
    write_audio(tmp_path / "x.wav", speech[:40_000], 16_000)
    changed = speech[: round(16_000 * seconds)]
    masks = Choice.masks

    def meanwhile(*arguments: Any) -> Any:
        write_audio(tmp_path / "x.wav", changed, 16_000)
        return masks(*arguments)

    monkeypatch.setattr(Choice, "masks", meanwhile)
    with pytest.raises(AudioError, match="the audio had 250 steps at first"):
        codec.encode_file(tmp_path / "x.wav")


def test_log_mel_statistics_come_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = tiny("s-vfr-50", selector=SelectorConfig(name="lagrangian", features="logmel", s_max=5))
    whole = codec.encode(read_audio(sample_path(), 16_000)[0], 16_000)
    monkeypatch.setattr(codec.backend, "piece", PIECE)
    monkeypatch.setattr(chain, "Z1_KEPT", 1)
    assert_same(codec.encode_file(sample_path()), whole)


@pytest.mark.parametrize("rate", [16_000, 22_050])
def test_a_streamed_file_is_the_one_that_is_read(tmp_path: Path, rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtm_codec.speech.audio._BLOCK", 3000)
    write_audio(tmp_path / "x.flac", read_audio(sample_path(), rate)[0], rate)
    blocks = list(stream_audio(tmp_path / "x.flac", 16_000))
    assert max(block.size for block in blocks) <= 3500
    assert np.array_equal(np.concatenate(blocks), read_audio(tmp_path / "x.flac", 16_000)[0])


@pytest.mark.parametrize("first_crossing", [True, False])
def test_path_lengths_are_decided_in_blocks_as_at_once(first_crossing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = np.random.default_rng(0).random((3, 1000, 1)) ** 8
    selector = PLE(first_crossing=first_crossing)
    at_once = [selector.keep(statistics, tau) for tau in (0.01, 0.3, 2.0)]
    monkeypatch.setattr(ple, "DECIDED_AT_ONCE", 7)
    for mask, tau in zip(at_once, (0.01, 0.3, 2.0), strict=True):
        assert np.array_equal(selector.keep(statistics, tau), mask)


MEASURE = """
import resource, sys
from dtm_codec import DTMCodec
codec = DTMCodec.from_pretrained(sys.argv[1])
for path in sys.argv[2:]:
    encoded = codec.encode_file(path)
    samples = sum(block.size for block in codec.decode_blocks(encoded))
    assert samples == encoded.num_samples
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_peak_memory_does_not_grow_with_length(tmp_path: Path) -> None:
    tiny("s-vfr-50", dim=16, mlp_hidden=16).save_pretrained(tmp_path / "model")
    speech, _ = read_audio(sample_path(), 16_000)
    for minutes in (2, 10):
        write_audio(tmp_path / f"{minutes}.flac", np.resize(speech, minutes * 60 * 16_000), 16_000)
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in ("model", "2.flac", "10.flac"))]
    short, long = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert long < short + 25  # held whole, the samples alone take 31 MB more; similarities of all tokens took gigabytes
