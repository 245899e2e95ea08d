"""The rate of a stream, its latency, losses that are drawn, and thinning."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_support import encode_in, joined, parsed, tiny

from dtm_codec import PRESETS, DTMCodec, Layout, preset
from dtm_codec.config import SelectorConfig
from dtm_codec.errors import BitstreamError, RateError
from dtm_codec.live.latency import latency_of
from dtm_codec.live.losses import draw_losses
from dtm_codec.live.packets import Packet, StreamFormat
from dtm_codec.live.rate import Budget, CausalPLE
from dtm_codec.rate.request import RateRequest
from dtm_codec.selectors import PLE
from dtm_codec.training.config import load_config

CONFIGS = Path(__file__).parents[2] / "configs"

LAYOUT = Layout(16_000, 160, 14, None)
lengths = st.sampled_from(["speech-like", "silence", "bursts", "steady", "growing"])


def steps_of(kind: str, count: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if kind == "silence":
        return np.where(np.arange(count) // 500 % 2, 0.0, draw.exponential(0.1, count))
    if kind == "bursts":
        return draw.exponential(0.1, count) * (draw.random(count) < 0.1) * 100
    if kind == "steady":
        return np.full(count, 0.05)
    if kind == "growing":
        return np.geomspace(1e-6, 1e3, count)
    return draw.exponential(0.1, count) * np.exp(np.sin(np.arange(count) / 30))


@given(kind=lengths, bitrate=st.integers(150, 1450), seed=st.integers(0, 99), s_max=st.sampled_from([None, 30]))
@settings(max_examples=60, deadline=None)
def test_any_two_seconds_are_within_15_percent_and_a_minute_within_2(
    kind: str, bitrate: int, seed: int, s_max: int | None
) -> None:
    budget = Budget.of(RateRequest(bitrate=bitrate), LAYOUT, s_max)
    chooser = CausalPLE(100.0, s_max=s_max).steer(budget)
    kept = np.array([chooser.keep(step) for step in steps_of(kind, 7000, seed)])
    for seconds, tolerance in ((2, 0.15), (60, 0.02)):
        count = np.convolve(kept, np.ones(100 * seconds, int), "valid")
        bits = 14 * count + 100 * seconds
        assert np.abs(bits / seconds / bitrate - 1).max() < tolerance + 1e-9


def test_another_rate_can_be_asked_for_in_the_middle(speech: np.ndarray) -> None:
    codec = tiny()
    encoder = codec.stream_encoder(bitrate=1200)
    long = np.tile(speech, 3)
    first = encoder.push(long)
    encoder.ask(RateRequest(bitrate=400))
    second = encoder.push(long) + encoder.flush()
    rates = []
    for packets in (first[10:], second[25:]):  # the first packets after a change are of before
        mask, codes = joined(parsed(encoder, packets))
        rates.append((14 * codes.size + mask.size) / (mask.size / 100))
    assert rates == [pytest.approx(1200, rel=0.1), pytest.approx(400, rel=0.15)]
    with pytest.raises(RateError, match="allowed: a bitrate or a token rate"):
        encoder.ask(RateRequest(tau=1.0))
    with pytest.raises(RateError, match="allowed: a new stream"):
        tiny("s-ffr-50").stream_encoder().ask(RateRequest(bitrate=800))


def test_a_steered_stream_still_follows_the_speech() -> None:
    """In the second half of each second the path is ten times as long: more of the tokens are there."""
    steps = np.where(np.arange(6000) % 100 < 50, 0.01, 0.1)
    chooser = CausalPLE(100.0).steer(Budget.of(RateRequest(bitrate=800), LAYOUT, None))
    kept = np.array([chooser.keep(step) for step in steps])
    assert kept[steps > 0.05].mean() > 1.3 * kept[steps < 0.05].mean()


@given(
    kind=lengths,
    tau=st.floats(1e-3, 10),
    seed=st.integers(0, 99),
    s_max=st.sampled_from([None, 1, 3, 7]),
    first_crossing=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_a_fixed_tau_keeps_what_the_whole_utterance_keeps(
    kind: str, tau: float, seed: int, s_max: int | None, first_crossing: bool
) -> None:
    steps = steps_of(kind, 500, seed)
    steps[0] = 0.0  # the first step has none before it
    whole = PLE(s_max, first_crossing=first_crossing).keep(steps[:, None], tau)
    chooser = CausalPLE(100.0, s_max=s_max, first_crossing=first_crossing).fix(tau)
    stream = np.array([chooser.keep(step) for step in steps])
    near = np.abs(np.cumsum(steps) / tau - np.round(np.cumsum(steps) / tau)) < 1e-9
    assert np.array_equal(stream, whole) or near[1:].any()  # float ties aside


def test_a_stream_of_speech_meets_its_bitrate(speech: np.ndarray) -> None:
    codec = tiny()
    for bitrate in (400, 1200):
        encoder = codec.stream_encoder(bitrate=bitrate)
        mask, _ = joined(parsed(encoder, encode_in([np.resize(speech, 96_000)], encoder)))
        assert (14 * mask.sum() + mask.size) / 6 == pytest.approx(bitrate, rel=0.05)


def test_rates_that_cannot_be_met() -> None:
    with pytest.raises(RateError, match=r"^tau = 3; allowed: 2, the stride of this stream or network$"):
        tiny("s-ffr-50").stream_encoder(tau=3)
    with pytest.raises(RateError, match=r"120 bps .*; allowed: 240 \.\.\. 1500 bps"):
        Budget.of(RateRequest(bitrate=120), LAYOUT, 10)
    with pytest.raises(RateError, match="101 tokens a second"):
        Budget.of(RateRequest(token_rate=101), LAYOUT, None)
    with pytest.raises(RateError, match=r"^100 bps .*; allowed: more than 100 bps, up to 1500$"):
        Budget.of(RateRequest(bitrate=100), LAYOUT, None)


def test_latency_is_what_the_stacks_look_ahead_and_the_frames_overlap() -> None:
    latency = latency_of(tiny().config)
    parts = (latency.front_end, latency.enc1, latency.enc2, latency.dec1, latency.dec2, latency.head)
    assert parts == (15, 40, 20, 60, 80, 15)
    assert latency.total == sum(parts)
    unlimited = latency_of(preset("s-vfr-50"))
    assert (unlimited.enc1, unlimited.enc2) == (2 * 640, math.inf)
    spans = replace(preset("s-vfr-50"), selector=SelectorConfig(s_max=4))
    assert latency_of(spans).enc2 == 4 * 64 * 4 * 10
    assert latency_of(PRESETS["s-ffr-50"]).dec1 == 4 * 64 * 2 * 10


def test_the_live_recipe_fits_into_200_ms_with_a_packet() -> None:
    config = load_config(CONFIGS / "small" / "live.yaml")
    assert latency_of(config.model).total + 40 <= 200
    assert config.packet_loss.share > 0


@pytest.mark.parametrize(("share", "longest"), [(0.05, 1), (0.1, 16), (0.0, 4)])
def test_losses_have_the_share_and_the_bursts_that_are_asked_for(share: float, longest: int) -> None:
    lost = draw_losses(200_001, share, longest, np.random.default_rng(0))
    assert lost.size == 200_001
    assert lost.mean() == pytest.approx(share, rel=0.06, abs=0)
    if share and longest > 1:
        runs = np.diff(np.flatnonzero(np.diff(lost.astype(int))))[::2]
        assert np.unique(runs).size > 2


@pytest.fixture(scope="module")
def codec() -> DTMCodec:
    return tiny()


@pytest.mark.parametrize("bitrate", [400, 500, 600])
def test_thinning_meets_a_rate_with_some_of_the_tokens(codec: DTMCodec, speech: np.ndarray, bitrate: float) -> None:
    encoded = codec.encode(speech, 16_000, bitrate=800)
    thinner = codec.thin(encoded, bitrate=bitrate)
    assert thinner.bits.total / thinner.duration_s == pytest.approx(bitrate, abs=14 / 2 + 1)
    stays = thinner.mask[encoded.mask]
    assert np.array_equal(encoded.codes[stays], thinner.codes)
    assert not thinner.mask[~encoded.mask].any()
    assert (thinner.num_samples, thinner.model_id, thinner.layout) == (speech.size, codec.model_id, encoded.layout)
    assert codec.decode(thinner).size == speech.size


def test_thinning_keeps_more_of_what_changes_than_of_what_repeats_itself(codec: DTMCodec, speech: np.ndarray) -> None:
    encoded = codec.encode(speech[:16_000], 16_000, token_rate=40)
    codes = np.concatenate([np.full(20, 7), np.random.default_rng(0).permutation(16_384)[:20]])
    utterance = replace(encoded, codes=codes)
    thinner = codec.thin(utterance, token_rate=18)
    same = int((thinner.codes == 7).sum())
    assert thinner.codes.size - same > 1.4 * same
    assert codec.thin(utterance, token_rate=40).codes.tolist() == codes.tolist()


def test_thinning_refuses_more_than_there_is_and_fixed_rates(codec: DTMCodec, speech: np.ndarray) -> None:
    encoded = codec.encode(speech, 16_000, bitrate=500)
    for bitrate in (900, 2000):
        with pytest.raises(
            RateError, match=rf"bitrate = {bitrate} bps; allowed: 107 \.\.\. (49|50)\d bps on this audio"
        ):
            codec.thin(encoded, bitrate=bitrate)
    with pytest.raises(RateError, match=r"token rate = 60 Hz; allowed: 0\.50 \.\.\. 28\.\d0 Hz on this audio"):
        codec.thin(encoded, token_rate=60)
    with pytest.raises(RateError, match="to no rate"):
        codec.thin(encoded)
    fixed = tiny("s-ffr-50")
    with pytest.raises(RateError, match="fixed-rate"):
        fixed.thin(fixed.encode(speech, 16_000), bitrate=400)


def test_a_relay_thins_packets_to_the_rate(codec: DTMCodec, speech: np.ndarray) -> None:
    encoder = codec.stream_encoder(bitrate=800)
    packets = encode_in([np.resize(speech, 128_000)], encoder)
    thinner = codec.stream_thinner(encoder.start, bitrate=500)
    thinned = [thinner.push(packet) for packet in packets]
    before, after = parsed(encoder, packets), parsed(encoder, thinned)
    mask, _ = joined(after)
    assert (14 * mask.sum() + mask.size) / 8 == pytest.approx(500, rel=0.05)
    for a, b in zip(before, after, strict=True):
        assert (a.sequence, a.last_samples) == (b.sequence, b.last_samples)
        assert not b.mask[~a.mask].any()
        assert np.array_equal(a.codes[b.mask[a.mask]], b.codes)
    with pytest.raises(BitstreamError):
        thinner.push(packets[0] + b"\0")
    with pytest.raises(RateError, match="to no rate"):
        codec.stream_thinner(encoder.start)


def test_a_relay_does_not_save_up_what_a_pause_leaves(codec: DTMCodec) -> None:
    """A stream without a steered rate sends nothing for 20 s, then far more than the relay may pass on."""
    form = StreamFormat(codec.model_id, codec.layout, 8)
    thinner, draw = codec.stream_thinner(form.start, bitrate=500), np.random.default_rng(0)
    passed = []
    for number in range(500):
        mask = np.arange(8) < (0 if number < 250 else 6)
        packet = Packet(number, mask, draw.integers(0, 16_384, int(mask.sum())))
        passed.append(form.read(thinner.push(form.write(packet))))
    kept, _ = joined(passed)
    bits = 14 * np.convolve(kept, np.ones(200, int), "valid") + 200
    assert bits.max() / 2 < 1.15 * 500
    assert bits[-1] / 2 == pytest.approx(500, rel=0.05)
