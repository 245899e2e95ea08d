"""The codec's laws: batch = single, exact lengths, pieces = whole, and clear answers to bad input."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dtm_codec import DTMCodec
from dtm_codec.bitstream import container
from dtm_codec.config import PAPER_PRESETS, PRESETS, SMALL_PRESETS, CodecConfig, SelectorConfig, preset
from dtm_codec.encoded import Encoded, Mode
from dtm_codec.errors import AudioError, BitstreamError, ConfigError, DTMCodecError, FileError, ModelError, RateError
from dtm_codec.speech.audio import audio_info, read_audio, sample_path

TINY = {"dim": 32, "heads": 2, "mlp_hidden": 48, "enc1_layers": 2, "enc2_layers": 1, "dec1_layers": 1, "dec2_layers": 2}
LENGTHS = (1, 2, 79, 159, 160, 161, 639, 16_000, 40_001)


def tiny(name: str, **changes: object) -> DTMCodec:
    torch.manual_seed(0)
    return DTMCodec(replace(preset(name), **(TINY | changes)))


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    return read_audio(sample_path(), 16_000)[0]


@pytest.fixture(scope="module")
def utterances(speech: np.ndarray) -> list[np.ndarray]:
    return [speech[5000 : 5000 + length] for length in LENGTHS]


def assert_same_codes(one: list[Encoded], other: list[Encoded]) -> None:
    """Equal masks and codes, float ties aside: fewer than 1 token in 10 000 may differ."""
    for a, b in zip(one, other, strict=True):
        assert (a.num_samples, a.model_id, a.layout) == (b.num_samples, b.model_id, b.layout)
    masks = [np.concatenate([e.mask for e in batch]) for batch in (one, other)]
    assert np.mean(masks[0] != masks[1]) < 1e-4
    codes = [np.concatenate([e.codes for e in batch]) for batch in (one, other)]
    assert np.mean(codes[0] != codes[1]) < 1e-4


@pytest.mark.parametrize("name", [*SMALL_PRESETS, "vfr-50", "ffr-50"])
def test_every_preset_runs_batched_as_single_and_keeps_lengths(name: str, utterances: list[np.ndarray]) -> None:
    codec = tiny(name)
    together = codec.encode(utterances, 16_000)
    alone = [codec.encode(x, 16_000) for x in utterances]
    assert_same_codes(together, alone)
    for x, batch, single in zip(utterances, codec.decode(together), map(codec.decode, alone), strict=True):
        assert batch.shape == single.shape == x.shape
        assert np.abs(batch - single).max() < 1e-4


@pytest.mark.parametrize(
    ("name", "selector"), list(itertools.product(["s-vfr-50", "avgrep"], ["ple", "lagrangian", "greedy"]))
)
def test_pieces_equal_the_whole(name: str, selector: str, speech: np.ndarray) -> None:
    codec = tiny(name)
    whole = [codec.encode(x, 16_000, selector=selector) for x in (speech, speech[:30_000])]
    audio = codec.decode(whole)
    codec.backend.piece = 64
    pieces = [codec.encode(x, 16_000, selector=selector) for x in (speech, speech[:30_000])]
    assert_same_codes(whole, pieces)
    for a, b in zip(audio, codec.decode(whole), strict=True):
        assert np.abs(a - b).max() < 1e-4


@pytest.mark.parametrize("mode", ["raw", "compact"])
@pytest.mark.parametrize("name", ["s-vfr-50", "s-ffr-50"])
def test_files_of_any_length_count_and_decode_exactly(name: str, mode: Mode, speech: np.ndarray) -> None:
    codec = tiny(name)
    for length in (1, 159, 160, 161, 16_001, 240 * 16_000 + 7):
        encoded = codec.encode(np.resize(speech, length), 16_000)
        data = codec.to_bytes(encoded, mode)
        assert codec.from_bytes(data) == encoded
        information = container.inspect(data)
        if mode == "raw":
            assert information.mask_bits + information.token_bits_written == encoded.bits.total
        assert 8 * len(data) == 8 * information.overhead_bytes + information.padding_bits + (
            information.mask_bits + information.token_bits_written
        )
        assert codec.decode(codec.from_bytes(data)).shape == (length,)


def test_log_mel_selection_in_pieces_equals_the_whole(speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50", selector=SelectorConfig(features="logmel", distance="l2"))
    whole = codec.encode(speech, 16_000)
    codec.backend.piece = 64
    assert_same_codes([whole], [codec.encode(speech, 16_000)])


def test_forward_is_encode_then_decode(speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50")
    crops = np.stack([speech[:16_000], speech[16_000:32_000]])
    codec.network.tau.fill_(codec.network.calibrated_tau(torch.from_numpy(crops)))
    output = codec.network(torch.from_numpy(crops))
    encoded = codec.encode(list(crops), 16_000)
    assert np.array_equal(output.mask.numpy(), np.stack([e.mask for e in encoded]))
    assert np.array_equal(output.codes.numpy(), np.concatenate([e.codes for e in encoded]))
    np.testing.assert_allclose(output.audio.numpy(), np.stack(codec.decode(encoded)), atol=1e-4)
    assert output.mask.float().mean() == pytest.approx(0.5, abs=0.01)


def test_every_parameter_has_a_gradient(speech: np.ndarray) -> None:
    for name in (*SMALL_PRESETS, "vfr-50"):
        network = tiny(name).network.train().requires_grad_(True)
        crops = torch.from_numpy(speech[:32_000]).view(2, 16_000)
        if network.tau.isnan():
            network.tau.fill_(network.calibrated_tau(crops))
        output = network(crops)
        loss = output.audio.square().sum() + output.quantizer_loss
        if output.pitch_logits is not None:
            loss = loss + output.pitch_logits[:, 0].sum()
        loss.backward()
        assert [n for n, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == [], name


@pytest.mark.parametrize("bitrate", [400, 640, 800, 1280])
@pytest.mark.parametrize("selector", ["ple", "lagrangian", "threshold", "peaks", "greedy", "dp", "random"])
def test_bitrate_is_met_within_two_percent(selector: str, bitrate: float, speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50")
    if selector in ("dp", "lagrangian", "peaks") and bitrate == 400:
        config = SelectorConfig(name=selector, s_max=8)  # type: ignore[arg-type]  # 400 bps need spans above 4
        encoded = codec.encode(speech, 16_000, bitrate=bitrate, selector=config)
    else:
        encoded = codec.encode(speech, 16_000, bitrate=bitrate, selector=selector)
    assert encoded.bits.total / encoded.duration_s == pytest.approx(bitrate, rel=0.02)


def test_token_rate_and_tau_are_met(speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50")
    encoded = codec.encode(speech, 16_000, token_rate=30)
    assert encoded.codes.size / encoded.duration_s == pytest.approx(30, rel=0.02)
    few, many = (codec.encode(speech, 16_000, tau=tau).codes.size for tau in (1.0, 0.1))
    assert few < many


def test_fixed_rate_says_what_it_reaches(speech: np.ndarray) -> None:
    codec = tiny("s-ffr-50")
    assert codec.encode(speech, 16_000, bitrate=800).layout.stride == 2
    assert codec.encode(speech, 16_000, token_rate=25).layout.stride == 4
    with pytest.raises(RateError, match=r"1600, 800, 533\.3, 400"):
        codec.encode(speech, 16_000, bitrate=700)
    for asked in ({"token_rate": 0.2}, {"tau": 500}, {"bitrate": 3.2}):
        with pytest.raises(RateError, match=r"at a fixed rate: 500 steps a token; allowed: 1 \.\.\. 255"):
            codec.encode(speech, 16_000, **asked)
    slow = codec.encode(speech, 16_000, tau=255)
    assert codec.from_bytes(codec.to_bytes(slow)) == slow
    with pytest.raises(RateError, match="allowed: 50 Hz"):
        tiny("s-conv").encode(speech, 16_000, token_rate=25)
    with pytest.raises(RateError, match="bps on this audio"):
        tiny("s-vfr-50").encode(speech, 16_000, bitrate=5000)


def test_other_sample_rates_and_stereo_are_brought_to_the_models(speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50")
    stereo = np.repeat(np.stack([speech, speech]), 2, axis=1)  # a crude 32 kHz version
    encoded = codec.encode(stereo, 32_000)
    assert encoded.num_samples == speech.size


@pytest.mark.parametrize(
    ("audio", "sample_rate", "error", "message"),
    [
        (np.zeros(0, np.float32), 16_000, AudioError, "empty|0 samples"),
        (np.array([0.0, np.nan], np.float32), 16_000, AudioError, "nan|NaN"),
        (np.zeros((2, 3, 4), np.float32), 16_000, AudioError, "shape"),
        (np.zeros(100, np.float32), "16000", AudioError, "sample"),
        (np.zeros(100, np.float32), 0, AudioError, "sample"),
        (np.zeros(100, np.float32), -8000, AudioError, "sample"),
        (np.array(["a"]), 16_000, AudioError, "allowed"),
    ],
)
def test_bad_audio_gets_a_clear_error(
    audio: np.ndarray, sample_rate: object, error: type[DTMCodecError], message: str
) -> None:
    with pytest.raises(error, match=message):
        tiny("s-vfr-50").encode(audio, sample_rate)  # type: ignore[arg-type]


def test_conflicting_or_impossible_rates_are_refused() -> None:
    codec, audio = tiny("s-vfr-50"), np.zeros(1600, np.float32)
    with pytest.raises(RateError, match="bitrate and tau"):
        codec.encode(audio, 16_000, bitrate=800, tau=1.0)
    for value in (-1, 0, float("nan"), "800", True):
        with pytest.raises(RateError, match="bitrate"):
            codec.encode(audio, 16_000, bitrate=value)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"selector\.name"):
        codec.encode(audio, 16_000, selector="best")


def test_a_device_that_is_not_here_is_named() -> None:
    codec = tiny("s-vfr-50")
    for device in ("cuda:99", torch.device("cuda:99")):
        with pytest.raises(ModelError, match="device = 'cuda:99'; allowed: one that torch finds here"):
            codec.to(device)
    assert codec.to("cpu") is codec


def test_a_rate_may_be_a_numpy_number(speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50")
    assert codec.encode(speech, 16_000, bitrate=np.int64(800)) == codec.encode(speech, 16_000, bitrate=800)
    assert codec.encode(speech, 16_000, tau=np.float32(0.5)) == codec.encode(speech, 16_000, tau=0.5)


def test_a_stride_by_tau_is_a_whole_number_that_the_model_can_do(speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50", selector=SelectorConfig(name="ple", s_max=4))
    assert codec.encode(speech, 16_000, selector="stride", tau=0.5).layout.stride == 1
    assert codec.encode(speech, 16_000, selector="stride", token_rate=10).layout.stride == 10
    capped = codec.encode(speech, 16_000, selector=SelectorConfig(name="stride", s_max=2), tau=5)
    assert capped.layout.stride == 2
    with pytest.raises(RateError, match="every 10-th step with s_max = 2"):
        codec.encode(speech, 16_000, selector=SelectorConfig(name="stride", s_max=2), token_rate=10)
    conv = tiny("s-conv")
    assert conv.encode(speech, 16_000, tau=2).layout.stride == 2
    for tau in (1.5, 4):
        with pytest.raises(RateError, match="allowed: 2, the stride of this stream or network"):
            conv.encode(speech, 16_000, tau=tau)


def test_hours_of_silence_are_coded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = tiny("s-vfr-25", enc1_layers=1, dec2_layers=1, dim=8, mlp_hidden=8)
    silence = np.zeros(3600 * 16_000, np.float32)
    encoded = codec.encode(silence, 16_000, tau=1.0)
    assert encoded.mask.sum() < 100
    longest = 0
    up = codec.network.up.forward

    def watched(h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        nonlocal longest
        longest = max(longest, mask.numel())
        return up(h, mask)

    monkeypatch.setattr(codec.network.up, "forward", watched)
    decoded = codec.decode(encoded)
    assert decoded.size == silence.size
    assert longest <= 3 * codec.backend.piece  # one span of an hour is not laid out whole


def test_a_tuple_is_a_batch(speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50")
    pair = (speech[:8000], speech[8000:16_000])
    encoded = codec.encode(pair, 16_000)
    assert encoded == [codec.encode(x, 16_000) for x in pair]
    assert [x.size for x in codec.decode(tuple(encoded))] == [8000, 8000]


def test_tokens_and_durations_are_an_utterance(speech: np.ndarray) -> None:
    codec = tiny("s-vfr-50")
    encoded = codec.encode(speech[:8001], 16_000)
    tokens, durations = encoded.tokens.tolist(), encoded.durations.astype(np.uint16)
    assert Encoded.from_durations(tokens, durations, codec.model_id, codec.layout, np.int64(8001)) == encoded
    whole = Encoded.from_durations(tokens, durations, codec.model_id, codec.layout)
    assert codec.decode(whole).size == whole.num_samples == 160 * encoded.mask.size
    assert Encoded.from_bytes(whole.to_bytes()) == whole
    for wrong in (durations * 0, durations[:0], durations + 0.5):
        with pytest.raises(BitstreamError, match="duration"):
            Encoded.from_durations(tokens, wrong, codec.model_id, codec.layout)
    with pytest.raises(BitstreamError, match="float64"):
        Encoded.from_durations(np.array(tokens) + 0.5, durations, codec.model_id, codec.layout)
    with pytest.raises(BitstreamError, match=r"num_samples = 8001\.0"):
        Encoded.from_durations(tokens, durations, codec.model_id, codec.layout, 8001.0)  # type: ignore[arg-type]


def test_another_models_tokens_are_refused(speech: np.ndarray) -> None:
    one, other = tiny("s-vfr-50"), tiny("s-vfr-50", norm_eps=2e-2)
    encoded = one.encode(speech, 16_000)
    with pytest.raises(ModelError, match=rf"{one.model_id}.*{other.model_id}"):
        other.decode(encoded)


def test_inference_is_thread_safe(utterances: list[np.ndarray]) -> None:
    codec = tiny("s-vfr-50")
    expected = [codec.encode(x, 16_000) for x in utterances]

    def work(_: int) -> list[Encoded]:
        return [codec.encode(x, 16_000, selector="random" if i % 2 else None) for i, x in enumerate(utterances)]

    with ThreadPoolExecutor(4) as threads:
        for encoded in threads.map(work, range(4)):
            assert encoded[::2] == expected[::2]


@pytest.mark.parametrize("name", PAPER_PRESETS)
def test_paper_presets_have_127_million_parameters(name: str) -> None:
    with torch.device("meta"):
        parameters = DTMCodec(PRESETS[name]).num_parameters
    assert parameters == pytest.approx(127e6, rel=0.015)


def test_small_presets_have_8_to_17_million_parameters() -> None:
    for config in SMALL_PRESETS.values():
        with torch.device("meta"):
            assert 8e6 < DTMCodec(config).num_parameters < 17e6


def test_default_config_is_the_papers_50_hz_model() -> None:
    assert CodecConfig() == preset("vfr-50")


# Files that are not what they should be


def test_only_regular_files_of_a_files_size_are_loaded(tmp_path: Path) -> None:
    codec = tiny("s-vfr-50")
    for path in ("/dev/zero", tmp_path / "pipe"):
        if not Path(path).exists():
            os.mkfifo(path)
        with pytest.raises(FileError, match="it is a device, a pipe or a socket; allowed: a regular file"):
            codec.load(path)
        with pytest.raises(AudioError, match="it is a device, a pipe or a socket; allowed: a regular file"):
            audio_info(path)
    with pytest.raises(FileNotFoundError):
        codec.load(tmp_path / "missing.dtm")
    with (tmp_path / "huge.dtm").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(FileError, match="more than 64 MiB"):
        codec.load(tmp_path / "huge.dtm")


def test_a_file_that_claims_hours_is_taken_if_asked_for(tmp_path: Path) -> None:
    codec = tiny("s-vfr-50")
    mask = np.zeros(360_000, bool)
    mask[0] = True
    hour = Encoded(np.zeros(1, int), mask, mask.size * 160, codec.model_id, codec.layout)
    codec.save(hour, tmp_path / "hour.dtm")
    with pytest.raises(BitstreamError, match=r"claim 1.00 hours; allowed: 0.24 hours"):
        codec.load(tmp_path / "hour.dtm")
    assert codec.load(tmp_path / "hour.dtm", max_hours=1) == hour
    assert codec.from_bytes(codec.to_bytes(hour), max_hours=1) == hour
    many = replace(hour, codes=np.zeros(100, int), mask=np.arange(360_000) < 100)
    padded = many.to_bytes("raw")  # long enough by its bytes, but not by its tokens
    with pytest.raises(BitstreamError, match="with 100 tokens that claim"):
        codec.from_bytes(padded)
