"""Laws of reading and writing audio."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.errors import AudioError, DTMCodecError
from dtm_codec.speech import audio as audio_module
from dtm_codec.speech.audio import (
    as_mono,
    audio_bytes,
    audio_info,
    check_sample_rate,
    read_audio,
    resample,
    sample_path,
    write_audio,
)


def tone(seconds: float = 0.5, rate: int = 16_000, hertz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def stereo_tone(rate: int) -> np.ndarray:
    return np.stack([tone(rate=rate), 0.5 * tone(rate=rate, hertz=660.0)], axis=1)  # (T, 2)


# Reading


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_any_format_rate_and_channel_count_becomes_mono_at_the_rate_asked_for(
    tmp_path: Path, suffix: str, rate: int
) -> None:
    path = tmp_path / f"x.{suffix}"
    soundfile.write(path, stereo_tone(rate), rate)
    assert audio_info(path) == audio_module.AudioInfo(rate, rate // 2, 2, rate // 2)
    assert audio_info(path).duration_s == pytest.approx(0.5, abs=1e-3)
    samples, read_rate = read_audio(path, 16_000)
    assert samples.dtype == np.float32
    assert read_rate == 16_000
    assert samples.shape == pytest.approx((8_000,), abs=1)
    expected = stereo_tone(16_000).mean(axis=1)
    inner = slice(800, 7_200)  # resampling and lossy coding have edges
    correlation = np.corrcoef(samples[inner], expected[inner])[0, 1]
    assert correlation > 0.99


def test_a_file_keeps_its_own_rate_when_none_is_asked_for(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", tone(rate=22_050), 22_050, subtype="FLOAT")
    samples, rate = read_audio(tmp_path / "x.wav")
    assert rate == 22_050
    assert np.array_equal(samples, tone(rate=22_050))


def test_path_bytes_and_file_object_read_alike(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.flac", stereo_tone(44_100), 44_100)
    data = (tmp_path / "x.flac").read_bytes()
    expected, _ = read_audio(tmp_path / "x.flac", 16_000)
    for source in (str(tmp_path / "x.flac"), data, io.BytesIO(data)):
        assert np.array_equal(read_audio(source, 16_000)[0], expected)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_a_part_is_that_part_of_the_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    soundfile.write(path, stereo_tone(16_000), 16_000)
    whole, _ = read_audio(path)
    assert np.array_equal(read_audio(path, offset=1_000, frames=500)[0], whole[1_000:1_500])
    assert np.array_equal(read_audio(path, offset=7_990, frames=500)[0], whole[7_990:])
    assert np.array_equal(read_audio(path, frames=1)[0], whole[:1])


def test_a_part_is_resampled_as_such(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", tone(rate=48_000), 48_000)
    whole, _ = read_audio(tmp_path / "x.wav")
    part, rate = read_audio(tmp_path / "x.wav", 16_000, offset=100, frames=3_000)
    assert rate == 16_000
    assert np.array_equal(part, resample(whole[100:3_100], 48_000, 16_000))


def test_reading_in_blocks_is_reading_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "x.wav", stereo_tone(44_100), 44_100)
    at_once = [read_audio(tmp_path / "x.wav", rate)[0] for rate in (None, 16_000)]
    monkeypatch.setattr(audio_module, "_BLOCK", 777)
    in_blocks = [read_audio(tmp_path / "x.wav", rate)[0] for rate in (None, 16_000)]
    assert np.array_equal(at_once[0], in_blocks[0])
    np.testing.assert_allclose(at_once[1], in_blocks[1], atol=1e-6)


def test_one_sample_at_a_high_rate_is_still_one_sample(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.array([0.25]), 48_000)
    assert read_audio(tmp_path / "x.wav", 16_000)[0].tolist() == [0.25]


@pytest.mark.parametrize(("offset", "frames"), [(-1, None), (0, 0), (0, -5), (8_000, 10), (9_000, None)])
def test_a_part_outside_the_file_is_refused(tmp_path: Path, offset: int, frames: int | None) -> None:
    soundfile.write(tmp_path / "x.wav", tone(), 16_000)
    with pytest.raises(AudioError, match="offset"):
        read_audio(tmp_path / "x.wav", offset=offset, frames=frames)


def test_what_is_no_audio_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("hello")
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "headerless.raw").write_bytes(bytes(100))
    soundfile.write(tmp_path / "silent.wav", np.zeros(0), 16_000)
    for name, reason in {
        "text.wav": "Format not recognised",
        "empty.wav": "Format not recognised",
        "headerless.raw": "samplerate",
        "silent.wav": "no samples",
        "missing.wav": "no such file",
        "": "a folder",
    }.items():
        with pytest.raises(AudioError, match=reason) as raised:
            read_audio(tmp_path / name)
        assert name in str(raised.value)
        assert "\n" not in str(raised.value)
    with pytest.raises(AudioError):
        audio_info(b"no audio either")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_file_with_numbers_that_are_none_is_refused(tmp_path: Path, value: float) -> None:
    samples = tone()
    samples[123] = value
    soundfile.write(tmp_path / "x.wav", samples, 16_000, subtype="FLOAT")
    with pytest.raises(AudioError, match="at sample 123"):
        read_audio(tmp_path / "x.wav")


def test_a_file_of_an_absurd_rate_is_refused_before_it_is_resampled(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", tone(), 1)
    with pytest.raises(AudioError, match="sample_rate = 1;"):
        read_audio(tmp_path / "x.wav", 16_000)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_files_give_audio_or_audio_error(data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(["WAV", "FLAC", "OGG"]))
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(0.05), 16_000, format=form)
    damaged = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        samples, _ = read_audio(cut)
    except AudioError:
        return
    assert samples.size
    assert np.isfinite(samples).all()


# Writing


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".WAV"])
def test_what_is_written_reads_back_to_16_bits(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    write_audio(path, tone(), 16_000)
    assert soundfile.info(path).subtype == "PCM_16"
    samples, rate = read_audio(path)
    assert rate == 16_000
    np.testing.assert_allclose(samples, tone(), atol=1 / 32_768)
    assert path.read_bytes() == audio_bytes(tone(), 16_000, suffix)


def test_samples_beyond_full_scale_are_clipped_not_wrapped(tmp_path: Path) -> None:
    write_audio(tmp_path / "x.wav", np.array([2.0, -2.0, 1.0, -1.0, 1e30], np.float32), 16_000)
    samples, _ = soundfile.read(tmp_path / "x.wav", dtype="int16")
    assert samples.tolist() == [32_767, -32_768, 32_767, -32_768, 32_767]


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
@pytest.mark.parametrize("room", [0, 50, 30_000])
def test_a_full_disk_is_an_error_and_leaves_nothing(
    tmp_path: Path, suffix: str, room: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class FullDisk(io.FileIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > room:
                raise OSError(28, "No space left on device")
            return super().write(data)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda path, mode="r": FullDisk(path, mode))
        noise = np.random.default_rng(0).uniform(-1, 1, 80_000).astype(np.float32)
        with pytest.raises(AudioError, match="No space left on device"):
            write_audio(tmp_path / f"x{suffix}", noise, 16_000)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == ""


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    write_audio(tmp_path / "x.wav", tone(), 16_000)
    before = (tmp_path / "x.wav").read_bytes()
    for path, samples, rate in [
        (tmp_path / "x.mp3", tone(), 16_000),
        (tmp_path / "x", tone(), 16_000),
        (tmp_path / "x.wav", np.array([np.nan]), 16_000),
        (tmp_path / "x.wav", tone(), 0),
        (tmp_path / "missing" / "x.wav", tone(), 16_000),
    ]:
        with pytest.raises(AudioError):
            write_audio(path, samples, rate)
    assert [path.name for path in tmp_path.iterdir()] == ["x.wav"]
    assert (tmp_path / "x.wav").read_bytes() == before


# Arrays


@pytest.mark.parametrize(
    "samples",
    [
        tone(),
        tone().astype(np.float64),
        torch.from_numpy(tone()),
        torch.from_numpy(tone()).double().requires_grad_(),
        tone()[None],
        tone()[:, None],
        np.stack([tone(), tone()]),
        np.stack([tone(), tone()], axis=1),
        np.stack([1.5 * tone(), 0.5 * tone()], axis=1),
        tone().tolist(),
        np.asfortranarray(np.stack([tone(), tone()])),
    ],
)
def test_arrays_tensors_and_lists_become_mono_float32(samples: object) -> None:
    mono = as_mono(samples)
    assert mono.dtype == np.float32
    assert mono.flags.c_contiguous
    np.testing.assert_allclose(mono, tone(), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_pcm_integers_are_scaled_to_one(dtype: type) -> None:
    limits = np.iinfo(dtype)
    mono = as_mono(np.array([limits.min, 0, limits.max], dtype))
    np.testing.assert_allclose(mono, [-1, 0, 1], atol=0.01)
    assert as_mono(torch.tensor([limits.min], dtype=getattr(torch, dtype.__name__))).tolist() == [-1.0]


def test_8_bit_pcm_is_offset_binary_and_half_floats_are_floats() -> None:
    assert as_mono(np.array([0, 128], np.uint8)).tolist() == [-1.0, 0.0]
    assert as_mono(torch.tensor([0.5], dtype=torch.bfloat16)).tolist() == [0.5]
    assert as_mono(np.array([0.5], np.float16)).tolist() == [0.5]


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (np.zeros(0), "empty"),
        ([], "empty"),
        (np.zeros((2, 0)), "empty"),
        (np.float32(0.5), "shape"),
        (0.5, "shape"),
        (np.zeros((1, 2, 100)), "shape"),
        (np.zeros((100, 200)), "shape"),
        (np.array([0.0, np.nan]), "at sample 1"),
        (np.array([np.inf]), "at sample 0"),
        (np.array([1e300]), "at sample 0"),
        (np.zeros(10, np.int64), "int64"),
        (np.zeros(10, bool), "bool"),
        (np.zeros(10, complex), "complex"),
        (np.array(["a"]), "type"),
        ("speech.wav", "type"),
        (None, "type"),
        ([[0.0, 1.0], [0.0]], "ragged"),
    ],
)
def test_what_is_no_signal_is_refused(samples: object, reason: str) -> None:
    with pytest.raises(AudioError, match=reason) as raised:
        as_mono(samples)
    assert isinstance(raised.value, DTMCodecError)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("rate", ["16000", 16_000.5, 16_000.0, 0, -16_000, True, None, 999, 10**7, np.float32(16_000)])
def test_a_rate_that_is_none_is_refused(rate: object) -> None:
    with pytest.raises(AudioError, match="sample_rate = "):
        check_sample_rate(rate)


@pytest.mark.parametrize("rate", [16_000, np.int64(16_000), np.int32(16_000)])
def test_whole_rates_of_any_integer_type_pass(rate: object) -> None:
    assert check_sample_rate(rate) == 16_000
    assert type(check_sample_rate(rate)) is int


@settings(deadline=None)
@given(st.integers(1, 5_000), st.sampled_from([8_000, 16_000, 22_050, 44_100, 48_000]))
def test_resampling_keeps_the_duration(num_samples: int, rate: int) -> None:
    samples = np.ones(num_samples, np.float32)
    resampled = resample(samples, rate, 16_000)
    assert resampled.dtype == np.float32
    assert resampled.size == pytest.approx(max(1, num_samples * 16_000 / rate), abs=1)


@pytest.mark.parametrize("name", ["dashwood", "amiable"])
def test_the_bundled_recordings_are_speech_at_16_khz(name: str) -> None:
    samples, rate = read_audio(sample_path(name))
    assert rate == 16_000
    assert 3 < samples.size / rate < 8
    assert 0.01 < samples.std() < 0.2


def test_an_unknown_recording_is_named_with_those_known() -> None:
    with pytest.raises(AudioError, match="'nobody'; known: amiable, dashwood"):
        sample_path("nobody")
