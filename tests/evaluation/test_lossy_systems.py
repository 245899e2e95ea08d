"""Systems whose packets get lost: the same losses for all, the length stays, without losses nothing changes."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from dtm_codec import DTMCodec
from dtm_codec.errors import ConfigError
from dtm_codec.evaluation import systems
from dtm_codec.evaluation.systems.lossy import Lossy, decode_opus
from dtm_codec.speech.audio import Samples

SYSTEMS = {"dtm:random:s-vfr-50": None, "opus:6": "opusenc", "codec2:1200": "c2enc"}


def built(inner: str, options: str) -> Lossy:
    program = SYSTEMS[inner]
    if program and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    rate = "token_rate=50&" if inner.startswith("dtm") else ""
    system = systems.build(f"lossy:{inner}?{rate}{options}")
    assert isinstance(system, Lossy)
    return system


@pytest.mark.parametrize("inner", SYSTEMS)
def test_without_losses_nothing_changes(inner: str, speech: Samples) -> None:
    system = built(inner, "loss=0")
    coded = system.encode(speech[:20_001])
    expected, decoded = system.inner.decode(coded), system.decode(coded)
    assert decoded.shape == expected.shape
    if inner == "opus:6":  # opusdec goes by way of 48 kHz, and comes out a sample later
        decoded, expected = decoded[:-1], expected[1:]
        assert np.corrcoef(decoded, expected)[0, 1] > 0.999
    else:
        assert np.abs(decoded - expected).max() < 2e-4


@pytest.mark.parametrize("inner", SYSTEMS)
@pytest.mark.parametrize("options", ["loss=20", "loss=20&burst=160"])
def test_losses_change_the_sound_and_not_its_length(inner: str, options: str, speech: Samples) -> None:
    system = built(inner, options)
    coded = system.encode(speech[:30_001])
    decoded = system.decode(coded)
    assert decoded.shape == (30_001,)
    assert np.isfinite(decoded).all()
    assert np.abs(decoded - system.inner.decode(coded)).max() > 1e-3


def test_an_utterance_is_encoded_once_for_all_losses(speech: Samples) -> None:
    few, many = (built("dtm:random:s-vfr-50", options) for options in ("loss=5", "loss=40&conceal=zero"))
    audio = speech[:20_001]
    (coded, heard), (again, worse) = few.round_trip(audio, "a"), many.round_trip(audio, "a")
    assert again is coded
    assert not np.array_equal(heard, worse)
    assert many.round_trip(speech[:20_001], "b")[0] is not coded  # another array may be another utterance


def test_silence_is_put_into_what_masked_steps_have_decoded(speech: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    masked, silent, repeated = (
        built("dtm:random:s-vfr-50", f"loss=20&conceal={conceal}") for conceal in ("mask", "zero", "repeat")
    )
    opened: list[bytes] = []
    open_stream = DTMCodec.stream_decoder
    monkeypatch.setattr(
        DTMCodec, "stream_decoder", lambda self, start: (opened.append(start), open_stream(self, start))[1]
    )
    audio = speech[:20_002]
    for system, streams in ((masked, 1), (silent, 1), (repeated, 2), (masked, 3)):
        system.round_trip(audio, "a")
        assert len(opened) == streams


def test_all_systems_lose_the_same_slots() -> None:
    patterns = [built(inner, "loss=20&burst=160").lost_slots(160_000) for inner in SYSTEMS]
    assert patterns[0].size == 250
    assert all(np.array_equal(patterns[0], other) for other in patterns)
    assert not np.array_equal(patterns[0], built("dtm:random:s-vfr-50", "loss=20").lost_slots(160_000))


def test_the_concealments_differ_where_slots_are_lost(speech: Samples) -> None:
    name = "dtm:random:s-vfr-50"
    outputs = {}
    for conceal in ("mask", "zero", "repeat"):
        system = built(name, f"loss=20&conceal={conceal}")
        outputs[conceal] = system.decode(system.encode(speech))
    lost = np.repeat(system.lost_slots(speech.size), 640)[: speech.size]
    assert not outputs["zero"][lost].any()
    assert np.array_equal(outputs["zero"][~lost], outputs["mask"][~lost])
    assert np.abs(outputs["repeat"] - outputs["mask"]).max() > 1e-4


@pytest.mark.parametrize("name", ["s-ffr-50", "s-vfr-80", "s-vfr-25"])
@pytest.mark.parametrize("conceal", ["mask", "repeat"])
def test_fixed_rates_and_packets_that_are_no_whole_slots(name: str, conceal: str, speech: Samples) -> None:
    """Of 2 s of speech in slots of 40 ms, and of lengths whose last slot is lost."""
    rate = "" if "ffr" in name else "token_rate=20&"
    system = systems.build(f"lossy:dtm:random:{name}?{rate}loss=30&conceal={conceal}")
    assert isinstance(system, Lossy)
    lengths = [length for length in range(20_000, 20_040) if system.lost_slots(length)[-1]][:2]
    for length in (speech.size, *lengths):
        decoded = system.decode(system.encode(speech[:length]))
        assert decoded.shape == (length,)
        assert np.isfinite(decoded).all()


def test_libopus_fills_what_is_missing(speech: Samples) -> None:
    system = built("opus:6", "loss=0")
    from dtm_codec.evaluation.systems.programs import ogg_packets

    _, _, *packets = ogg_packets(system.encode(speech).payload)
    whole = decode_opus(list(packets), 320)
    holed = decode_opus([None if 20 <= i < 24 else packet for i, packet in enumerate(packets)], 320)
    assert np.array_equal(whole[: 20 * 320], holed[: 20 * 320])
    assert np.abs(whole - holed)[20 * 320 : 24 * 320].max() > 1e-3
    assert holed.size == whole.size


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lossy", "which system"),
        ("lossy:identity?loss=5", "allowed: dtm:MODEL"),
        ("lossy:codec2:1200?loss=100", "loss = '100'"),
        ("lossy:codec2:1200?loss=5&conceal=zero", "allowed: dtm:MODEL with conceal"),
        ("lossy:dtm:random:s-vfr-50?loss=5&conceal=pray", "mask, zero, repeat"),
        ("lossy:dtm:random:s-vfr-50?loss=5&speed=2", "unknown option 'speed'"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        systems.build(name)


def test_a_thinned_system_counts_what_is_left(speech: Samples) -> None:
    system = systems.build("dtm:random:s-vfr-50?bitrate=800&thin=500")
    coded = system.encode(speech)
    assert coded.bits.total / coded.duration_s == pytest.approx(500, abs=8)
    assert "thinned to 500 bps" in system.title
