"""Hostile and odd input on the command line: one line that names it, and nothing half done."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from cli_support import Run, sweep
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

from dtm_codec import DTMCodec, preset
from dtm_codec.bitstream import container
from dtm_codec.bitstream.header import MAX_STEPS
from dtm_codec.cli import standard_streams
from dtm_codec.encoded import Encoded
from dtm_codec.errors import BitstreamError
from dtm_codec.speech.audio import audio_info, read_audio, write_audio
from dtm_codec.system import files


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def silence(codec: DTMCodec, seconds: float) -> Encoded:
    """As long as is claimed, with one token."""
    mask = np.zeros(codec.layout.steps(round(seconds * 16_000)), bool)
    mask[0] = True
    return Encoded(np.zeros(1, int), mask, mask.size * 160, codec.model_id, codec.layout)


# What a file says about itself


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hop_length": 65_535}, "hop_length = 65535"),
        ({"sample_rate": 8_000}, "sample_rate = 8000"),
        ({"token_bits": 13}, "token_bits = 13"),
    ],
)
def test_a_layout_that_is_not_the_models_is_refused(
    run: Run, tmp_path: Path, model: Path, change: dict[str, int], named: str
) -> None:
    codec = DTMCodec.from_pretrained(model)
    layout = replace(codec.layout, **change)
    forged = Encoded(np.zeros(100, int), np.ones(100, bool), 100 * layout.hop_length, codec.model_id, layout)
    (tmp_path / "x.dtm").write_bytes(forged.to_bytes("raw"))
    result = run("decode", "x.dtm", "-m", model)
    assert result.code == 2
    assert f"{named} in the file; model '{codec.model_id}' has" in result.stderr
    assert names(tmp_path) == {"x.dtm"}
    with pytest.raises(ValueError, match=named):
        codec.decode(forged)


def test_a_convolution_has_one_stride(tmp_path: Path) -> None:
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    codec = DTMCodec(replace(preset("s-conv"), dim=32, heads=2, mlp_hidden=48, **sizes))
    for stride in (None, 3):
        with pytest.raises(ValueError, match=f"stride = {stride} in the file"):
            codec.check_layout(replace(codec.layout, stride=stride))
    codec.check_layout(codec.layout)


def test_a_small_file_that_claims_hours_is_refused_at_once_unless_asked_for(
    run: Run, tmp_path: Path, model: Path
) -> None:
    codec = DTMCodec.from_pretrained(model)
    (tmp_path / "hour.dtm").write_bytes(silence(codec, 3600).to_bytes())
    assert Path("hour.dtm").stat().st_size < 1100
    started = time.monotonic()
    for command in (
        ("decode", "hour.dtm", "-m", model),
        ("thin", "hour.dtm", "-m", model, "-b", 105),
        ("info", "hour.dtm"),
    ):
        result = run(*command)
        assert result.code == 2
        assert "hour.dtm: 10" in result.stderr
        assert "bytes that claim 1.00 hours; allowed: 0.24 hours, or --max-hours" in result.stderr
    assert time.monotonic() - started < 10
    assert run("info", "hour.dtm", "--max-hours", 1).code == 0
    (tmp_path / "short.dtm").write_bytes(silence(codec, 20).to_bytes())
    assert run("decode", "short.dtm", "-m", model).code == 0
    for command in (("decode",), ("thin", "--token-rate", 0.05)):
        assert run(*command, "short.dtm", "-m", model, "--max-hours", 0.005, "-o", "no").code == 2
        assert run(*command, "short.dtm", "-m", model, "-o", "yes").code == 0


@pytest.mark.parametrize("command", [("decode",), ("thin", "--bitrate", 500)], ids=lambda command: command[0])
def test_the_longest_claim_is_refused_before_its_mask_is_decoded(
    run: Run, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...]
) -> None:
    codec = DTMCodec.from_pretrained(model)
    header = container.Header(codec.layout, MAX_STEPS * 160, codec.model_id, mask_bytes=47_900)
    content = header.to_bytes() + bytes(47_910)
    (tmp_path / "x.dtm").write_bytes(content + zlib.crc32(content).to_bytes(4, "big"))
    monkeypatch.setattr("dtm_codec.bitstream.mask_coder.decode", lambda *arguments: pytest.fail("decoded"))
    assert "claim 46.60 hours; allowed: 3.50 hours" in run(*command, "x.dtm", "-m", model).stderr
    for read in (codec.load, lambda path: codec.from_bytes(Path(path).read_bytes())):
        with pytest.raises(BitstreamError, match="max_hours in Python"):
            read("x.dtm")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        Fail("[ONNXRuntimeError] : 1 : FAIL : ... Failed to allocate memory for requested buffer of size 6160384"),
        RuntimeException("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : ... std::bad_alloc"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_file_that_does_not_fit_into_memory_does_not_end_the_batch(
    run: Run, speech: Path, model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    write_audio("other.wav", sweep(0.2), 16_000)
    encode_file = DTMCodec.encode_file

    def scarce(self: DTMCodec, source: Path, **options: object) -> Encoded:
        if source.name == "other.wav":
            raise error
        return encode_file(self, source, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DTMCodec, "encode_file", scarce)
    result = run("encode", "other.wav", "speech.wav", "-m", model)
    assert result.code == 1
    assert "other.wav: not enough memory" in result.stderr
    assert names(speech.parent) == {"other.wav", "speech.wav", "speech.dtm"}


# Where input comes from


@pytest.mark.parametrize("command", ["encode", "decode", "info"])
def test_devices_are_refused(run: Run, command: str, model: Path) -> None:
    options = () if command == "info" else ("-m", model, "-o", "out")
    result = run(command, "/dev/zero", *options)
    assert result.code == 2
    assert "/dev/zero is a device or a socket; allowed: regular files and pipes" in result.stderr


def test_a_pipe_is_read_up_to_a_limit(
    run: Run, speech: Path, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.mkfifo("pipe")
    for limit, code in ((1 << 30, 0), (1 << 10, 2)):
        monkeypatch.setattr(standard_streams, "PIPE_BYTES", limit)
        writer = threading.Thread(target=_fill, args=(Path("pipe"), speech.read_bytes()))
        writer.start()
        assert run("encode", "pipe", "-m", model, "-o", f"{limit}.dtm").code == code
        writer.join()
    assert not Path("1024.dtm").exists()
    refused = run("encode", "-", "-m", model, stdin=speech.read_bytes())
    assert refused.code == 2
    assert "standard input brings more than 0 MiB" in refused.stderr


def _fill(path: Path, data: bytes) -> None:
    with suppress(BrokenPipeError):
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("command", "output"), [(("decode",), "speech.decoded.wav"), (("thin", "-b", 500), "speech.thin.dtm")]
)
def test_what_is_no_dtm_file_is_told_before_anything_about_the_output(
    run: Run, speech: Path, command: tuple[object, ...], output: str
) -> None:
    Path(output).write_bytes(b"precious")
    result = run(*command, "speech.wav")
    assert "speech.wav: not a .dtm file: it starts with b'RIF'" in result.stderr
    assert "exists" not in result.stderr


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_closed_streams_are_an_error_where_they_are_needed(speech: Path, model: Path, closed: int) -> None:
    arguments = {0: ["encode", "-"], 1: ["encode", "speech.wav", "-o", "-"], 2: ["encode", "speech.wav"]}[closed]
    command = [sys.executable, "-m", "dtm_codec", *arguments, "-m", str(model)]
    result = subprocess.run(
        command,
        cwd=speech.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        preexec_fn=lambda: os.close(closed),
    )
    assert b"Traceback" not in result.stderr
    if closed == 2:
        assert result.returncode == 0
        assert names(speech.parent) == {"speech.wav", "speech.dtm"}
    else:
        assert result.returncode == 2
        stream = ("standard input", "standard output")[closed]
        assert f"{stream}: it is closed" in result.stderr.decode()


def test_info_takes_files_folders_and_globs(run: Run, speech: Path, model: Path) -> None:
    run("encode", "speech.wav", "-m", model, "-o", "out/a.dtm")
    Path("out/b.dtm").write_bytes(b"bad")
    result = run("info", "out", "--json")
    assert result.code == 1
    good, bad = json.loads(result.stdout)
    assert (good["input"], good["num_samples"]) == ("out/a.dtm", 16_000)
    assert bad["input"] == "out/b.dtm"
    assert "not a .dtm file" in bad["error"]
    assert b"out/a.dtm" in run("info", "out/a*").stdout


# What is in the audio


def test_a_file_that_breaks_off_is_coded_with_a_warning(run: Run, tmp_path: Path, model: Path) -> None:
    write_audio("whole.wav", sweep(2.0), 16_000)
    Path("cut.wav").write_bytes(Path("whole.wav").read_bytes()[: 44 + 2 * 960])
    result = run("encode", "cut.wav", "-m", model, "--json")
    assert result.code == 0
    assert "cut.wav: warning: the file breaks off: 0.06 s of 2.00 s are there" in result.stderr
    assert json.loads(result.stdout)[0]["warnings"] == ["the file breaks off: 0.06 s of 2.00 s are there"]
    assert audio_info("cut.wav").num_samples == 960
    assert "warning" not in run("encode", "whole.wav", "-m", model).stderr


def test_a_stream_of_unknown_length_is_not_said_to_break_off(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, sweep(1.0), 16_000, format="WAV")
    data = buffer.getvalue()
    for size in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"):
        info = audio_info(data[:4] + size + data[8:40] + size + data[44:])
        assert info.promised_samples == info.num_samples == 16_000


def test_samples_that_no_recording_has_are_refused_by_name(run: Run, tmp_path: Path, model: Path) -> None:
    samples = sweep()
    samples[12_345] = 1e30
    soundfile.write("x.wav", samples, 16_000, subtype="FLOAT")
    result = run("encode", "x.wav", "-m", model)
    assert result.code == 2
    assert "x.wav holds 1e+30 at sample 12345; allowed: -100 ... 100" in result.stderr
    samples[12_345] = 4.0
    soundfile.write("loud.wav", samples, 16_000, subtype="FLOAT")
    assert run("encode", "loud.wav", "-m", model).code == 0
    codec = DTMCodec.from_pretrained(model)
    for method in (codec.encode, codec.stage1, codec.selector_statistics, codec.features):
        with pytest.raises(ValueError, match="holds 1e"):
            method(np.array([0.0, 1e30], np.float32), 16_000)


# Care for files


def test_of_two_processes_one_writes_the_new_file(
    run: Run, speech: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_file = DTMCodec.encode_file

    def overtaken(self: DTMCodec, source: Path, **options: object) -> Encoded:
        Path("speech.dtm").write_bytes(b"of the other process")  # after the check at the start
        return encode_file(self, source, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DTMCodec, "encode_file", overtaken)
    result = run("encode", "speech.wav", "-m", model)
    assert result.code == 2
    assert "speech.dtm exists; --force overwrites it" in result.stderr
    assert Path("speech.dtm").read_bytes() == b"of the other process"
    assert names(speech.parent) == {"speech.wav", "speech.dtm"}


def test_what_a_killed_run_left_is_gone_after_the_next(run: Run, speech: Path, model: Path) -> None:
    Path("out").mkdir()
    Path(f"out/.{files._MACHINE}0123456789ab.dtm").write_bytes(b"half")
    assert run("encode", "speech.wav", "-m", model, "-o", "out").code == 0
    assert names(Path("out")) == {"speech.dtm"}


# What users are told


def test_progress_is_told_from_start_to_end(speech: Path, model: Path) -> None:
    codec = DTMCodec.from_pretrained(model)
    write_audio(speech, sweep(8.0), 16_000)
    codec.backend.piece = 64
    audio, rate = read_audio(speech)
    for encode in (
        lambda tell: codec.encode_file(speech, on_progress=tell),
        lambda tell: codec.encode([audio, audio[: rate // 2]], rate, on_progress=tell),
    ):
        told: list[float] = []
        encode(told.append)
        assert told == sorted(told)
        assert len(told) > 10
        assert told[-1] == pytest.approx(1.0)
