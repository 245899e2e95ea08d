"""Systems: same length and in time, bits as transmitted, clear errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from dtm_codec.errors import DTMCodecError
from dtm_codec.evaluation import systems
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.systems.base import fit
from dtm_codec.evaluation.systems.programs import ogg_packet_sizes
from dtm_codec.metrics.base import SAMPLE_RATE
from dtm_codec.speech.audio import Samples

PROGRAMS = {"codec2": "c2enc", "opus": "opusenc", "speex": "speexenc"}


def usable(name: str) -> systems.System:
    """The system, or a skip where its program or library is not installed."""
    program = PROGRAMS.get(name.partition(":")[0])
    if program and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    system = systems.build(name)
    if name.startswith("amr"):
        try:
            system.encode(np.zeros(320, np.float32))
        except DTMCodecError as error:
            pytest.skip(str(error))
    return system


PEERS = {  # nominal bits a second
    "codec2:3200": 3200,
    "codec2:700C": 700,
    "codec2:450": 450,
    "opus:6": 6000,
    "speex:nb2": 6000,
    "speex:wb0": 4000,
    "amr:nb4.75": 4750,
    "amr:wb6.60": 6600,
}


@pytest.mark.parametrize("name", ["identity", "lowpass", *PEERS])
@pytest.mark.parametrize("samples", [1, 319, 16_000, 20_001])
def test_output_is_as_long_as_the_input(name: str, samples: int, speech: Samples) -> None:
    system = usable(name)
    coded = system.encode(speech[:samples])
    decoded = system.decode(coded)
    assert decoded.shape == (samples,)
    assert decoded.dtype == np.float32
    assert np.isfinite(decoded).all()
    assert coded.bits.position == 0
    assert coded.written >= coded.bits.content > 0


@pytest.mark.parametrize(("name", "nominal"), PEERS.items())
def test_bits_are_those_of_the_mode(name: str, nominal: int, speech: Samples) -> None:
    coded = usable(name).encode(speech)
    frames_over = 2 * 0.040 / coded.duration_s  # the last frame, and the codec's delay
    assert 0.8 * nominal <= coded.bits.total / coded.duration_s <= (1.05 + frames_over) * nominal


@pytest.mark.parametrize("name", ["lowpass", *PEERS])
def test_output_is_in_time_with_the_input(name: str, speech: Samples) -> None:
    system = usable(name)
    lag = delay(speech, system.decode(system.encode(speech)))
    assert abs(lag) <= 0.008 * SAMPLE_RATE, f"{1000 * lag / SAMPLE_RATE:.1f} ms"


def delay(reference: Samples, decoded: Samples) -> int:
    """Lag of the energy envelopes, within 60 ms."""
    window = np.hanning(321)
    first, second = (np.sqrt(np.convolve(x.astype(np.float64) ** 2, window, "same")) for x in (reference, decoded))
    first, second = first - first.mean(), second - second.mean()
    reach = 60 * SAMPLE_RATE // 1000
    lags = range(-reach, reach + 1, 8)
    inner = slice(reach, first.size - reach)
    return max(lags, key=lambda lag: float(first[inner] @ np.roll(second, -lag)[inner]))


def test_low_pass_keeps_what_is_below_and_stops_what_is_above() -> None:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    system = systems.build("lowpass")
    for hertz, gain in ((1000, 1.0), (3000, 1.0), (4000, 0.0), (7000, 0.0)):
        tone = np.sin(2 * np.pi * hertz * time).astype(np.float32)
        decoded = system.decode(system.encode(tone))[2000:-2000]
        assert np.abs(decoded).max() == pytest.approx(gain, abs=0.01), hertz


def test_ogg_packets_are_counted_across_segments_and_pages() -> None:
    def page(segments: list[int]) -> bytes:
        return b"OggS" + bytes(22) + bytes([len(segments)]) + bytes(segments) + bytes(sum(segments))

    data = page([19]) + page([255, 255, 10, 30]) + page([255]) + page([255, 0, 7])
    assert list(ogg_packet_sizes(data)) == [19, 520, 30, 510, 7]


def test_fit_cuts_delay_and_fills_the_end() -> None:
    assert fit(np.arange(5, dtype=np.float32), 4, delay=2).tolist() == [2, 3, 4, 0]


@pytest.mark.parametrize(
    "name",
    [
        "codex",
        "codec2:9000",
        "opus:5",
        "opus:loud",
        "speex:2",
        "amr:nb5",
        "dtm",
        "identity?x=1",
        "lowpass:-1",
        "snac:25",
        "mimi:8.5",
        "dac:0.3",
        "dac:0",
    ],
)
def test_a_wrong_name_is_one_clear_line(name: str) -> None:
    with pytest.raises(DTMCodecError, match=r"allowed|known") as error:
        systems.build(name)
    assert "\n" not in str(error.value)


def test_a_program_that_is_not_there_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(DTMCodecError, match="opus-tools"):
        _ = systems.build("opus:6").identity


def test_no_more_codebooks_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from dtm_codec.evaluation.systems import neural

    monkeypatch.setattr(
        neural.DAC, "published", {"encoder_hidden_size": 4, "decoder_hidden_size": 32, "n_codebooks": 2}
    )
    with pytest.raises(DTMCodecError, match=r"^dac:3\?model=random; allowed: 1 \.\.\. 2 codebooks$"):
        systems.build("dac:3?model=random").encode(np.zeros(16_000, np.float32))


def test_weights_that_are_not_there_are_asked_for_once(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(DTMCodecError, match=r"give encodec:1\.5\?model=FOLDER$"):
        systems.build(f"encodec:1.5?model={tmp_path}").encode(np.zeros(16_000, np.float32))


# Ours


def test_our_bits_are_those_of_eq_5(models: Path, speech: Samples) -> None:
    vfr = systems.build(f"dtm:{models / 's-vfr-50' / 'export'}")
    coded = vfr.encode(speech)
    assert coded.bits.content == coded.payload.codes.size * 14
    assert coded.bits.position == coded.payload.mask.size
    assert vfr.decode(coded).shape == speech.shape
    ffr = systems.build(f"dtm:{models / 's-ffr-50'}").encode(speech)
    assert (ffr.bits.position, ffr.bits.content) == (0, ffr.payload.codes.size * 16)
    assert (vfr.series, systems.build(f"dtm:{models / 's-ffr-50'}").series) == ("DTM-Codec VFR", "DTM-Codec FFR")


def test_rate_and_selector_are_options_of_the_name(models: Path, speech: Samples) -> None:
    name = f"dtm:{models / 's-vfr-50' / 'export'}?selector=dp&s_max=3&bitrate=700"
    system = systems.build(name)
    coded = system.encode(speech)
    assert system.name == name
    assert coded.payload.durations.max() <= 3
    assert coded.bits.total / coded.duration_s == pytest.approx(700, rel=0.02)
    with pytest.raises(DTMCodecError, match="s_max"):
        systems.build(f"dtm:{models / 's-ffr-50'}?s_max=few")
    assert systems.build(f"dtm:{models / 's-vfr-50' / 'export'}?selector=stride").series == "DTM-Codec FFR, stride"


@pytest.mark.usefixtures("free_moves")
def test_effort_is_an_option_of_the_name(models: Path, manifest: Path, speech: Samples) -> None:
    model = f"dtm:{models / 's-vfr-50' / 'export'}"
    plain, searched = (systems.build(f"{model}?bitrate=700{more}") for more in ("", "&effort=1"))
    assert searched.title == f"{plain.title}, effort 1"
    assert searched.series == f"{plain.series}, effort 1"
    a, b = plain.encode(speech), searched.encode(speech)
    assert a.bits == b.bits
    assert (a.payload.codes != b.payload.codes).any()
    calibrated = systems.build(f"{model}?bitrate=700&effort=1&calibrate={manifest}")
    assert systems.build(calibrated.settled_name).encode(speech).payload == calibrated.encode(speech).payload
    for wrong in ("-1", "1.5", "much", ""):
        with pytest.raises(DTMCodecError, match=f"effort = '{wrong}'; allowed: a whole number >= 0"):
            systems.build(f"{model}?effort={wrong}")


def test_one_tau_is_calibrated_on_a_set(models: Path, manifest: Path) -> None:
    model = f"dtm:{models / 's-vfr-50' / 'export'}"
    for swap in ("", "&selector=lagrangian&s_max=4"):
        system = systems.build(f"{model}?bitrate=700&calibrate={manifest}{swap}")
        coded = [system.encode(u.read(SAMPLE_RATE)[0]) for u in read_data(manifest)]
        bps = sum(c.bits.total for c in coded) / sum(c.duration_s for c in coded)
        assert bps == pytest.approx(700, rel=0.02)
        assert system.series == ("DTM-Codec VFR, lagrangian" if swap else "DTM-Codec VFR")
        settled = systems.build(system.settled_name)
        assert "calibrate" not in settled.name
        assert [settled.encode(u.read(SAMPLE_RATE)[0]).bits for u in read_data(manifest)] == [c.bits for c in coded]
    with pytest.raises(DTMCodecError, match="needs a rate"):
        systems.build(f"{model}?calibrate={manifest}")
    with pytest.raises(DTMCodecError, match="fixed rate"):
        systems.build(f"dtm:{models / 's-ffr-50'}?bitrate=800&calibrate={manifest}")


# Neural peers, with random weights of a small shape


@pytest.mark.parametrize("name", ["encodec:1.5", "dac:2", "mimi:4", "snac:24"])
def test_neural_peers_count_their_codes(name: str, speech: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("snac" if name.startswith("snac") else "transformers")
    from dtm_codec.evaluation.systems import neural

    small = {
        "EnCodec": {"num_filters": 4, "hidden_size": 16},
        "DAC": {"encoder_hidden_size": 4, "decoder_hidden_size": 32, "downsampling_ratios": [2, 4, 5, 8]},
        "Mimi": {
            "num_filters": 4,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "intermediate_size": 32,
            "frame_rate": 12.5,
        }
        | {"num_attention_heads": 2, "num_key_value_heads": 2, "upsample_groups": 32, "codebook_dim": 16}
        | {"vector_quantization_hidden_dimension": 16},
        "SNAC": {**neural.SNAC.published, "encoder_dim": 8, "decoder_dim": 64},
    }
    for cls, shape in small.items():
        monkeypatch.setattr(getattr(neural, cls), "published", shape)
    system = systems.build(f"{name}?model=random")
    audio = speech[:16_000]
    coded = system.encode(audio)
    bps = {"encodec:1.5": 1500, "dac:2": 1000, "mimi:4": 550, "snac:24": 984}[name]
    assert coded.bits.total / coded.duration_s == pytest.approx(bps, rel=0.1)
    assert system.decode(coded).shape == audio.shape
    assert "random weights" in system.title


def test_a_stream_is_judged_as_it_is_sent(speech: Samples) -> None:
    streamed, whole = (systems.build(f"dtm:random:s-vfr-50?{options}") for options in ("tau=0.9&stream=80", "tau=0.9"))
    coded, expected = streamed.encode(speech), whole.encode(speech)
    assert coded.payload == expected.payload  # the same tau has the same tokens
    packets = -(-coded.payload.mask.size // 8)
    assert coded.written >= coded.bits.total + 24 * packets
    assert np.abs(streamed.decode(coded) - whole.decode(expected)).max() < 1e-4
    steered = systems.build("dtm:random:s-vfr-50?bitrate=800&stream=40").encode(speech)
    assert steered.bits.total / (speech.size / SAMPLE_RATE) == pytest.approx(800, rel=0.15)


@pytest.mark.parametrize(
    ("options", "message"),
    [("stream=50", "allowed: 40, 80"), ("stream=80&effort=1", "stream with effort"), ("stream=x", "stream = 'x'")],
)
def test_streams_that_cannot_be_are_named(options: str, message: str) -> None:
    with pytest.raises(DTMCodecError, match=message):
        systems.build(f"dtm:random:s-vfr-50?{options}")
