"""A stream is the whole: any cutting gives the tokens, mask and audio that the whole utterance has."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_support import encode_in, joined, parsed, tiny, usual_tau

from dtm_codec import DTMCodec
from dtm_codec.config import SelectorConfig
from dtm_codec.errors import AudioError, ConfigError, DTMCodecError, ModelError, RateError
from dtm_codec.live.latency import latency_of
from dtm_codec.speech.audio import resample

LENGTHS = (1, 159, 160, 161, 640, 12_345)
MODELS = {
    "look-ahead": {},
    "causal": {f"{stack}_lookahead": 0 for stack in ("enc1", "enc2", "dec1", "dec2")},
    "window": {f"{stack}_lookahead": None for stack in ("enc1", "enc2", "dec1", "dec2")},
    "log-mel": {"selector": SelectorConfig(features="logmel", distance="l2")},
    "short spans": {"selector": SelectorConfig(s_max=3), "enc1_layers": 1, "enc1_lookahead": 0},
    "first crossing": {"selector": SelectorConfig(first_crossing=True), "enc2_lookahead": 16},
}


@pytest.fixture(scope="module")
def codec() -> DTMCodec:
    return tiny()


def decoded(codec: DTMCodec, start: bytes, packets: list[bytes]) -> np.ndarray:
    decoder = codec.stream_decoder(start)
    return np.concatenate([*(decoder.push(packet) for packet in packets), decoder.flush()])


def assert_stream_is_whole(codec: DTMCodec, audio: np.ndarray, **settings: object) -> None:
    tau = {} if codec.config.is_fixed_rate else {"tau": usual_tau(codec, np.resize(audio, 16_000))}
    whole = codec.encode(audio, 16_000, **tau)
    encoder = codec.stream_encoder(**tau, **settings)
    packets = encode_in([audio[:1000], audio[1000:]], encoder)
    mask, codes = joined(parsed(encoder, packets))
    assert np.array_equal(mask, whole.mask)
    assert np.array_equal(codes, whole.codes)
    samples = decoded(codec, encoder.start, packets)
    assert samples.size == audio.size
    assert np.abs(samples - codec.decode(whole)).max() < 1e-4


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_a_stream_has_the_tokens_and_sound_of_the_whole(changes: dict[str, object], speech: np.ndarray) -> None:
    assert_stream_is_whole(tiny(**changes), speech)


@pytest.mark.parametrize("name", ["s-vfr-25", "s-vfr-80", "s-ffr-50", "vfr-50"])
@pytest.mark.parametrize("packet_ms", [40, 160])
def test_at_any_frame_rate_fixed_or_variable(name: str, packet_ms: int, speech: np.ndarray) -> None:
    assert_stream_is_whole(tiny(name), speech[:20_001], packet_ms=packet_ms)


@pytest.mark.parametrize("length", LENGTHS)
def test_of_any_length(length: int, codec: DTMCodec, speech: np.ndarray) -> None:
    assert_stream_is_whole(codec, speech[5000 : 5000 + length])


@given(
    cuts=st.lists(st.integers(0, 16_001), max_size=12), packet_ms=st.sampled_from([40, 80, 160]), steered=st.booleans()
)
@settings(max_examples=12, deadline=None)
def test_any_cutting_gives_the_same_bytes_at_the_same_time(
    codec: DTMCodec, speech: np.ndarray, cuts: list[int], packet_ms: int, steered: bool
) -> None:
    audio = speech[:16_001]
    rate = {"bitrate": 700} if steered else {"tau": usual_tau(codec, audio[:16_000])}
    pieces = [audio[a:b] for a, b in pairwise([0, *sorted(cuts), audio.size])]
    at_once, in_pieces = (codec.stream_encoder(**rate, packet_ms=packet_ms) for _ in range(2))
    assert encode_in([audio], at_once) == encode_in(pieces, in_pieces)


@pytest.mark.parametrize("packet_ms", [40, 80, 160])
@pytest.mark.parametrize("name", ["look-ahead", "causal", "short spans"])
def test_packets_and_samples_come_when_the_latency_says(name: str, packet_ms: int, speech: np.ndarray) -> None:
    codec = tiny(**MODELS[name])
    latency, samples_per_ms = latency_of(codec.config), 16
    encoder = codec.stream_encoder(tau=usual_tau(codec, speech), packet_ms=packet_ms)
    decoder = codec.stream_decoder(encoder.start)
    heard = played = sent = 0
    early = []  # samples that are there before they must be: where few tokens come, Dec1 has fewer to wait for
    for piece in np.split(speech[:16_000], 200):  # 5 ms each
        heard += piece.size
        for packet in encoder.push(piece):
            sent += 1
            played += decoder.push(packet).size
        due = (heard / samples_per_ms - latency.encoder) // packet_ms  # packets whose look-ahead has been heard
        assert sent == max(0, due)
        early.append(played - max(0, (due * packet_ms - latency.decoder) * samples_per_ms))
    assert min(early) == 0
    assert max(early) <= latency.dec1 * samples_per_ms


def test_what_a_stream_remembers_is_bounded(codec: DTMCodec, speech: np.ndarray) -> None:
    def numbers(thing: object, seen: set[int]) -> int:
        """Of all tensors, arrays and lists that hang on an object."""
        if id(thing) in seen or thing is codec.network:
            return 0
        seen.add(id(thing))
        if hasattr(thing, "numel"):
            return int(thing.numel())
        if isinstance(thing, np.ndarray):
            return thing.size
        inside = thing if isinstance(thing, list | tuple) else list(getattr(thing, "__dict__", {}).values())
        modules = [x for x in inside if not hasattr(x, "parameters")]
        return len(inside) + sum(numbers(x, seen) for x in modules)

    encoder = codec.stream_encoder(bitrate=700)
    decoder = codec.stream_decoder(encoder.start)
    sizes = []
    for _ in range(6):
        for packet in encoder.push(np.resize(speech, 32_000)):
            decoder.push(packet)
        sizes.append(numbers(encoder, set()) + numbers(decoder, set()))
    assert max(sizes[2:]) < 1.2 * sizes[1]


def test_a_stream_of_another_sample_rate_is_resampled(codec: DTMCodec, speech: np.ndarray) -> None:
    at_48 = resample(speech, 16_000, 48_000)
    tau = usual_tau(codec, speech)
    encoder = codec.stream_encoder(tau=tau, sample_rate=48_000)
    packets = encode_in(np.array_split(at_48, 17), encoder)
    mask, _ = joined(parsed(encoder, packets))
    whole = codec.encode(at_48, 48_000, tau=tau)
    assert np.mean(mask != whole.mask) < 0.01
    assert decoded(codec, encoder.start, packets).size == whole.num_samples


@pytest.mark.parametrize(("rate", "most_ms"), [(48_000, 37), (44_100, 41), (8_000, 116)])
def test_the_resampler_holds_back_what_the_docs_say(codec: DTMCodec, rate: int, most_ms: float) -> None:
    encoder = codec.stream_encoder(sample_rate=rate)
    draw, pushed, behind = np.random.default_rng(0), 0, []
    while pushed < rate // 2:
        encoder.push((0.1 * draw.standard_normal(rate // 1000)).astype(np.float32))
        pushed += rate // 1000
        behind.append(1000 * (pushed / rate - encoder._heard / 16_000))
    assert most_ms - 5 < max(behind) <= most_ms


def test_silence_and_nothing(codec: DTMCodec) -> None:
    encoder = codec.stream_encoder(bitrate=700)
    assert encoder.push(np.zeros(0, np.float32)) == encoder.flush() == []
    silent = codec.stream_encoder(bitrate=700)
    packets = encode_in([np.zeros(32_000, np.float32)], silent)
    assert decoded(codec, silent.start, packets).size == 32_000


def test_what_a_user_can_get_wrong(codec: DTMCodec, speech: np.ndarray) -> None:
    encoder = codec.stream_encoder(bitrate=700)
    with pytest.raises(AudioError, match="nan"):
        encoder.push(np.array([0.0, np.nan], np.float32))
    encoder.push(np.zeros(10, np.float32))
    with pytest.raises(AudioError, match=r"the stream holds 1e\+30 at sample 12; allowed: -100 \.\.\. 100"):
        encoder.push(np.array([0.0, 4.0, 1e30], np.float32))
    with pytest.raises(AudioError, match="the stream holds nan at sample 11; allowed: finite numbers"):
        encoder.push(np.array([0.0, np.nan], np.float32))
    encoder.push(speech[:100])
    encoder.flush()
    assert encoder.flush() == []
    with pytest.raises(DTMCodecError, match="ended"):
        encoder.push(speech)
    with pytest.raises(ConfigError, match=r"packet_ms = 50; allowed: 40, 80, 160"):
        codec.stream_encoder(packet_ms=50)
    with pytest.raises(RateError, match="bitrate and tau"):
        codec.stream_encoder(bitrate=700, tau=1.0)
    for bitrate in (90, 1501):
        with pytest.raises(RateError, match=r"allowed: more than 100 bps, up to 1500"):
            codec.stream_encoder(bitrate=bitrate)
    with pytest.raises(ModelError, match=r"upsampler 'repeat'; allowed: 'mask'"):
        tiny(upsampler="repeat").stream_encoder()
    with pytest.raises(ModelError, match="stage2_positions 'rank'"):
        tiny(stage2_positions="rank", enc2_lookahead=0, dec1_lookahead=0).stream_encoder()
    with pytest.raises(RateError, match=r"selector 'threshold'; allowed: 'ple', 'stride'"):
        tiny(selector=SelectorConfig(name="threshold")).stream_encoder()
    other = tiny(norm_eps=2e-2)
    with pytest.raises(ModelError, match=rf"{codec.model_id}.*{other.model_id}"):
        other.stream_decoder(encoder.start)
    with pytest.raises(DTMCodecError, match="wait = -1"):
        codec.stream_decoder(encoder.start, wait=-1)
    with pytest.raises(ConfigError, match=r"enc1_lookahead = 17; allowed: 0 \.\.\. 16"):
        replace(codec.config, enc1_lookahead=17)
    with pytest.raises(ConfigError, match="enc2_lookahead = 1; allowed: 0 or null with stage2_positions 'rank'"):
        replace(codec.config, stage2_positions="rank")
