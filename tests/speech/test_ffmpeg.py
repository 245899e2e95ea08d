"""What phones record is read by ffmpeg: through the one reader, and never for longer than it should take."""

from __future__ import annotations

import io
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from dtm_codec.errors import AudioError
from dtm_codec.evaluation.systems.amr import AMR
from dtm_codec.evaluation.systems.programs import ProgramError
from dtm_codec.specs import Spec
from dtm_codec.speech import ffmpeg
from dtm_codec.speech.audio import audio_info, read_audio, stream_audio
from dtm_codec.speech.folders import read_set
from dtm_codec.speech.raw import RawAudio, RawFormat

RATE = 16_000

RECORDINGS = {
    "aac.m4a": ["-c:a", "aac", "-b:a", "64k"],
    "faststart.mp4": ["-c:a", "aac", "-b:a", "64k", "-movflags", "+faststart"],
    "opus.webm": ["-c:a", "libopus", "-b:a", "48k"],
    "phone.amr": [],
    "windows.wma": ["-c:a", "wmav2", "-b:a", "64k"],
    "plain.aac": ["-c:a", "aac", "-b:a", "64k"],
}


def tone(seconds: float = 2.0) -> np.ndarray:
    times = np.arange(round(seconds * RATE)) / RATE
    return (0.4 * np.sin(2 * np.pi * 440 * times)).astype(np.float32)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = shutil.which("ffmpeg")
    if program is None:
        pytest.skip("needs ffmpeg")
    folder = tmp_path_factory.mktemp("recordings")
    for name, options in RECORDINGS.items():
        if name.endswith(".amr"):  # which Debian's ffmpeg reads and does not write
            system = AMR(Spec.parse("amr:nb12.2"))
            try:
                frames = system.encode(tone()).payload
            except ProgramError as error:
                pytest.skip(str(error))
            (folder / name).write_bytes(b"#!AMR\n" + b"".join(frames))
            continue
        source = ["-f", "f32le", "-ar", str(RATE), "-ac", "1", "-i", "pipe:0"]
        command = [program, "-v", "error", *source, *options, str(folder / name)]
        subprocess.run(command, input=tone().tobytes(), check=True)
    return folder


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("form", ["path", "bytes", "file"])
def test_every_format_is_heard(recordings: Path, name: str, form: str) -> None:
    path = recordings / name
    source = {"path": path, "bytes": path.read_bytes(), "file": io.BytesIO(path.read_bytes())}[form]
    info = audio_info(source)
    assert info.duration_s == pytest.approx(2.0, abs=0.15)
    assert info.sample_rate == (8000 if name.endswith("amr") else info.sample_rate)
    samples, rate = read_audio(source, RATE)
    assert rate == RATE
    middle = samples[RATE // 2 : RATE // 2 + 8000] * np.hanning(8000)
    assert np.argmax(np.abs(np.fft.rfft(middle))) * RATE / 8000 == pytest.approx(440, abs=3)
    assert np.array_equal(np.concatenate(list(stream_audio(source, RATE))), samples)


def test_a_file_is_decoded_once_and_again_when_it_changes(recordings: Path, tmp_path: Path, monkeypatch) -> None:
    runs = []
    decode = ffmpeg._decode
    monkeypatch.setattr(ffmpeg, "_decode", lambda *a: runs.append(a) or decode(*a))
    path = tmp_path / "a.m4a"
    shutil.copy(recordings / "aac.m4a", path)
    for _ in range(3):
        assert audio_info(path).num_samples > RATE
    assert len(runs) == 1
    shutil.copy(recordings / "faststart.mp4", path)
    audio_info(path)
    assert len(runs) == 2
    # one that is still being read stays whole when another takes its place
    blocks = stream_audio(path, 8000)
    first = next(blocks)
    audio_info(recordings / "opus.webm")
    assert first.size + sum(block.size for block in blocks) == pytest.approx(2 * 8000, rel=0.1)


def test_a_folder_is_searched_for_them(recordings: Path) -> None:
    assert {Path(utterance.audio).name for utterance in read_set(recordings)} == set(RECORDINGS)


def test_without_ffmpeg_one_line_says_what_is_missing(recordings: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AudioError, match="need the program ffmpeg, which is not installed"):
        audio_info((recordings / "aac.m4a").read_bytes())


def outcome(data: bytes) -> np.ndarray | str:
    """Samples, or what is said instead."""
    try:
        return read_audio(data)[0]
    except AudioError as error:
        return str(error)


@pytest.mark.parametrize("cut", [16, 200, 3000])
def test_a_file_that_breaks_off_is_read_or_refused(recordings: Path, cut: int) -> None:
    for name in RECORDINGS:
        heard = outcome((recordings / name).read_bytes()[:cut])
        if isinstance(heard, str):
            assert heard.startswith("cannot read audio data")
            assert "\n" not in heard
            assert "/tmp" not in heard, "the name of a temporary file is nobody's business"


@pytest.mark.parametrize("head", [b"\x00\x00\x00\x20ftypM4A ", b"\x1a\x45\xdf\xa3", b"#!AMR\n", b"\xff\xf1"])
def test_noise_behind_a_good_start_is_refused_or_heard(head: bytes) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("needs ffmpeg")
    heard = outcome(head + np.random.default_rng(0).bytes(20_000))
    assert "\n" not in heard if isinstance(heard, str) else heard.size < 20_000 * 400


@pytest.mark.parametrize(
    "text",
    [
        "#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        "ffconcat version 1.0\nfile /etc/passwd\n",
        "<?xml version='1.0'?><MPD></MPD>",
    ],
)
def test_lists_of_other_files_never_reach_ffmpeg(text: str, monkeypatch) -> None:
    monkeypatch.setattr(ffmpeg, "_decode", lambda *_: pytest.fail("ffmpeg was started"))
    with pytest.raises(AudioError, match="cannot read"):
        audio_info(text.encode())


def stand_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another ffmpeg, and a file for it."""
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    sound = folder / "a.amr"
    sound.write_bytes(b"#!AMR\n" + bytes(100))
    return sound


@pytest.mark.parametrize("script", ["exec sleep 60", "printf x; exec sleep 60"])
def test_an_ffmpeg_that_hangs_is_stopped(tmp_path: Path, monkeypatch, script: str) -> None:
    sound = stand_in(tmp_path, script, monkeypatch)
    monkeypatch.setattr(ffmpeg, "PATIENCE_SECONDS", 0.5)
    began = time.monotonic()
    with pytest.raises(AudioError, match="ffmpeg was stopped"):
        audio_info(sound)
    assert time.monotonic() - began < 10


def test_more_sound_than_the_disk_should_hold_is_refused(tmp_path: Path, monkeypatch) -> None:
    sound = stand_in(tmp_path, "exec cat /dev/zero", monkeypatch)
    monkeypatch.setattr(ffmpeg, "MAX_DECODED_BYTES", 1 << 20)
    with pytest.raises(AudioError, match="GiB of sound"):
        audio_info(sound)


def test_what_ffmpeg_is_told(tmp_path: Path, monkeypatch) -> None:
    """No guessing of formats, no network, nothing that a name could smuggle in."""
    sound = stand_in(tmp_path, f'printf "%s\\n" "$@" > {tmp_path}/told', monkeypatch)
    evil = tmp_path / "-f concat; http:x|y.amr"
    sound.rename(evil)
    with pytest.raises(AudioError, match="it has no sound"):
        audio_info(evil)
    told = (tmp_path / "told").read_text().splitlines()
    assert told[told.index("-protocol_whitelist") + 1] == "file"
    assert told[told.index("-f") + 1] == "amr"
    assert told[told.index("-i") + 1] == f"file:{evil}"
    assert told.count(f"file:{evil}") == 1


@pytest.mark.parametrize(("form", "dtype"), [("s16le", "<i2"), ("s32le", "<i4"), ("f32le", "<f4"), ("u8", "u1")])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_without_a_header_are_what_was_said(form, dtype: str, channels: int) -> None:
    sound = tone(0.5)
    scaled = sound if dtype == "<f4" else sound * 127 + 128 if dtype == "u1" else sound * np.iinfo(dtype).max
    data = np.repeat(scaled.astype(dtype), channels).tobytes()
    source = RawAudio(io.BytesIO(data), RawFormat(RATE, channels, form))
    info = audio_info(source)
    assert (info.sample_rate, info.channels, info.num_samples) == (RATE, channels, sound.size)
    np.testing.assert_allclose(read_audio(source)[0], sound, atol=0.02)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"sample_rate": 16_000, "channels": 0}, "channels = 0; allowed: 1 ... 32"),
        ({"sample_rate": 16_000, "form": "mp3"}, "format = 'mp3'; allowed: s16le, s32le, f32le, u8"),
    ],
)
def test_wrong_descriptions_are_refused(raw: dict, said: str) -> None:
    with pytest.raises(AudioError, match=said):
        RawFormat(**raw)
