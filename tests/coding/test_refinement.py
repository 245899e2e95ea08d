"""Effort: the search hears what the decoder says, never makes it worse, and depends on the utterance alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from dtm_codec import DTMCodec
from dtm_codec.coding import refinement
from dtm_codec.coding.refinement import MEL_WINDOWS, Refiner
from dtm_codec.config import QuantizerConfig, preset
from dtm_codec.encoded import Encoded
from dtm_codec.errors import ConfigError
from dtm_codec.nn.mel_distance import MultiScaleMelDistance
from dtm_codec.speech.audio import Samples

TINY = {"dim": 32, "heads": 2, "mlp_hidden": 48, "enc1_layers": 1, "enc2_layers": 1, "dec1_layers": 1, "dec2_layers": 1}
FSQ = QuantizerConfig(kind="fsq", codebook_size=64_000, levels=(5, 5, 5, 8, 8, 8))
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "source-filter": ("s-vfr-50", {}),
    "istft": ("vfr-50", {}),
    "fixed rate": ("s-ffr-50", {}),
    "conv": ("s-conv", {}),
    "average and repeat": ("avgrep", {}),
    "fsq": ("vfr-50", {"quantizer": FSQ}),
    "ranks": ("vfr-50", {"stage2_positions": "rank"}),
}


def tiny(name: str = "s-vfr-50", **changes: object) -> DTMCodec:
    torch.manual_seed(0)
    return DTMCodec(replace(preset(name), **(TINY | changes)))  # type: ignore[arg-type]


def distance(codec: DTMCodec, encoded: Encoded, signal: Samples) -> float:
    mel = MultiScaleMelDistance(16_000, MEL_WINDOWS)
    return float(mel(torch.from_numpy(codec.decode(encoded))[None], torch.from_numpy(signal)[None]))


def test_the_bundled_model_comes_nearer_to_the_original(speech: Samples) -> None:
    codec = DTMCodec.from_pretrained()
    plain = codec.encode(speech, 16_000, bitrate=800)
    assert codec.encode(speech, 16_000, bitrate=800, effort=0) == plain
    searched = codec.encode(speech, 16_000, bitrate=800, effort=2)
    assert np.array_equal(searched.mask, plain.mask)
    assert searched.bits == plain.bits
    assert distance(codec, searched, speech) < 0.97 * distance(codec, plain, speech)


@pytest.mark.usefixtures("free_moves")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_network_is_searched(variant: str, speech: Samples) -> None:
    name, changes = VARIANTS[variant]
    codec = tiny(name, **changes)
    signal = speech[:16_000]
    plain, searched = (codec.encode(signal, 16_000, effort=effort) for effort in (0, 2))
    assert (plain.codes != searched.codes).any()
    assert searched.codes.max() < codec.config.quantizer.codebook_size
    if codec.config.head == "istft":  # the distance has no other term than this
        assert distance(codec, searched, signal) < distance(codec, plain, signal)


@pytest.mark.parametrize("variant", VARIANTS)
def test_windows_hear_what_the_decoder_says(variant: str, speech: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    name, changes = VARIANTS[variant]
    codec = tiny(name, **changes | {"head": "istft"})  # the other head follows the true pitch in the search
    hop = codec.config.hop_length
    monkeypatch.setattr(refinement, "WINDOW", 60)
    monkeypatch.setattr(refinement, "CONTEXT", 300)  # more than a network of one layer in each stage reaches
    signal = np.tile(speech, 5)
    encoded = codec.encode(signal, 16_000)
    expected = torch.from_numpy(codec.decode(encoded))
    head, synthesize = codec.network.head.forward, codec.network.head.synthesize
    begins: list[int] = []
    heard: list[torch.Tensor] = []

    def watched(y: torch.Tensor, positions: torch.Tensor, pitch: torch.Tensor | None) -> object:
        begins.append(int(positions[0]))
        return head(y, positions, pitch)

    def listened(frames: torch.Tensor) -> torch.Tensor:
        audio = synthesize(frames)
        heard.append(audio[0])
        return audio

    monkeypatch.setattr(codec.network.head, "forward", watched)
    monkeypatch.setattr(codec.network.head, "synthesize", listened)
    codes = Refiner(codec.network, 0).better_codes(signal, encoded.codes, encoded.mask)
    assert np.array_equal(codes, encoded.codes)
    assert len(heard) > 10
    for begin, audio in zip(begins, heard, strict=True):
        edge = 4 * hop  # what overlaps with frames outside
        last = min(begin * hop + audio.numel(), expected.numel())
        inside = slice(begin * hop + (edge if begin else 0), last - edge)
        ours = audio[inside.start - begin * hop : inside.stop - begin * hop]
        torch.testing.assert_close(ours, expected[inside], atol=2e-4, rtol=0)


def test_distances_over_time_add_up_to_the_distance(speech: Samples) -> None:
    mel = MultiScaleMelDistance(16_000, MEL_WINDOWS)
    original, decoded = torch.from_numpy(speech)[None], torch.from_numpy(speech)[None].clone()
    decoded[:, 16_000:16_800] *= 0.5
    over_time = mel.over_time(decoded, mel.log_mels(original), 160)
    assert over_time.shape == (200,)
    torch.testing.assert_close(over_time.mean(), mel(decoded, original), rtol=0.05, atol=0)
    assert over_time[100:105].min() > 2 * over_time.mean()
    assert over_time[:90].max() == over_time[115:].max() == 0


@pytest.mark.usefixtures("free_moves")
def test_neither_neighbours_nor_pieces_change_what_is_found(speech: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "WINDOW", 64)
    monkeypatch.setattr(refinement, "CONTEXT", 16)
    monkeypatch.setattr(refinement, "HEARD", 8)
    codec = tiny()
    signals = [speech[3000 : 3000 + length] for length in (1, 79, 160, 1000, 8000, 20_001)]
    alone = [codec.encode(x, 16_000, effort=2) for x in signals]
    assert codec.encode(signals, 16_000, effort=2) == alone
    assert codec.encode(signals, 16_000) != alone
    assert [x.size for x in codec.decode(alone)] == [x.size for x in signals]
    codec.backend.piece = 64
    assert codec.encode(signals, 16_000, effort=2) == alone
    with ThreadPoolExecutor(3) as threads:
        for found in threads.map(lambda _: codec.encode(signals, 16_000, effort=2), range(3)):
            assert found == alone


@pytest.mark.usefixtures("free_moves")
def test_long_audio_is_searched_in_windows(speech: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "WINDOW", 64)
    monkeypatch.setattr(refinement, "CONTEXT", 16)
    monkeypatch.setattr(refinement, "HEARD", 8)
    codec = tiny("vfr-50")
    signal = np.concatenate([speech, np.zeros(80_000, np.float32), speech])  # one token for seconds of silence
    plain = codec.encode(signal, 16_000)
    assert plain.durations.max() > 128
    longest, up = 0, codec.network.up.forward

    def watched(h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        nonlocal longest
        longest = max(longest, mask.numel())
        return up(h, mask)  # type: ignore[no-any-return]

    monkeypatch.setattr(codec.network.up, "forward", watched)
    found = Refiner(codec.network, 2).better_codes(signal, plain.codes, plain.mask)
    assert longest <= 64 + 3 * 16
    searched = replace(plain, codes=found)
    assert distance(codec, searched, signal) < distance(codec, plain, signal)
    for window in np.array_split(np.arange(plain.codes.size), 4):
        assert (searched.codes[window] != plain.codes[window]).any()


def test_progress_rises_to_one_over_all_utterances(speech: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "WINDOW", 64)
    told: list[float] = []
    signals = [speech[:8000], np.zeros(48_000, np.float32), speech[:100]]
    tiny().encode(signals, 16_000, effort=2, on_progress=told.append)
    assert len(told) >= 3 * 2
    assert told == sorted(told)
    assert 0 < told[0] < 0.2
    assert told[-1] == pytest.approx(1)


def test_the_search_leaves_no_trace_in_the_network(speech: Samples) -> None:
    codec = tiny()
    signal = speech[:8000]
    expected, model_id = codec.encode(signal, 16_000, effort=2), codec.model_id
    codec.network.requires_grad_(True)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with mode:
            assert codec.encode(signal, 16_000, effort=2) == expected
    assert all(weight.grad is None for weight in codec.network.parameters())
    assert codec.model_id == model_id


@pytest.mark.parametrize("effort", [-1, 1.5, True, "4", None, float("nan")])
def test_an_effort_that_is_no_count_is_refused(effort: object) -> None:
    with pytest.raises(ConfigError, match=r"effort = .*; allowed: a whole number >= 0"):
        tiny().encode(np.zeros(1600, np.float32), 16_000, effort=effort)  # type: ignore[call-overload]


def test_effort_may_be_a_numpy_number(speech: Samples) -> None:
    codec = tiny()
    assert codec.encode(speech, 16_000, effort=np.int64(2)) == codec.encode(speech, 16_000, effort=2)
