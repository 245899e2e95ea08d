"""`stream encode`, `stream decode` and `thin` as a user meets them, on pipes."""

from __future__ import annotations

import fcntl
import io
import json
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_support import Run, sweep

from dtm_codec import DTMCodec, Encoded, preset
from dtm_codec.live.packets import SEQUENCES, Packet, StreamFormat, read_record, write_record
from dtm_codec.speech.audio import read_audio, write_audio
from dtm_codec.speech.pipes import open_pipe, pcm_bytes, wav_header

SECONDS = 1.5


@pytest.fixture(scope="module")
def live_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model of a few thousand parameters that looks 50 ms ahead."""
    folder = tmp_path_factory.mktemp("live-model")
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    ahead = {"enc1_lookahead": 1, "enc2_lookahead": 0, "dec1_lookahead": 0, "dec2_lookahead": 1}
    torch.manual_seed(0)
    DTMCodec(replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **sizes, **ahead)).save_pretrained(folder)
    return folder


def records(data: bytes) -> list[bytes]:
    stream, found = io.BytesIO(data), []
    while (record := read_record(stream)) is not None:
        found.append(record)
    return found


def of_records(found: list[bytes]) -> bytes:
    stream = io.BytesIO()
    for record in found:
        write_record(stream, record)
    return stream.getvalue()


def test_without_a_model_a_stream_has_the_live_one(run: Run) -> None:
    result = run("stream", "encode", stdin=wav_header(16_000) + pcm_bytes(sweep(0.5)))
    assert result.code == 0, result.stderr
    start = read_record(io.BytesIO(result.stdout))
    assert start is not None
    assert StreamFormat.from_start(start).model_id.startswith("s-live:")


@pytest.fixture
def packets(run: Run, live_model: Path) -> bytes:
    sound = wav_header(16_000) + pcm_bytes(sweep(SECONDS))
    result = run("stream", "encode", "-m", live_model, "-b", 700, stdin=sound)
    assert result.code == 0, result.stderr
    return result.stdout


def test_wav_to_packets_to_wav(run: Run, live_model: Path, packets: bytes, tmp_path: Path) -> None:
    assert len(records(packets)) == 1 + 19  # a start, and a packet of 80 ms each
    result = run("stream", "decode", "-m", live_model, stdin=packets)
    assert (result.code, result.stderr) == (0, "")
    audio = open_pipe(io.BytesIO(result.stdout), None)
    samples = np.concatenate(list(audio.blocks()))
    assert (audio.sample_rate, samples.size) == (16_000, SECONDS * 16_000)
    raw = run("stream", "decode", "-m", live_model, "--raw", stdin=packets)
    assert raw.stdout == result.stdout[44:]


def test_raw_samples_in_are_the_same_as_wav(run: Run, live_model: Path, packets: bytes) -> None:
    sound = pcm_bytes(sweep(SECONDS))
    options = ("-m", live_model, "-b", "0.7k", "--rate", 16_000)
    assert run("stream", "encode", *options, stdin=sound).stdout == packets
    shorter = run("stream", "encode", *options, "--packet-ms", 40, stdin=sound).stdout
    assert len(records(shorter)) == 1 + 38


def test_what_is_lost_or_damaged_is_filled_and_counted(run: Run, live_model: Path, packets: bytes) -> None:
    start, *sent = records(packets)
    sent[7] = bytes(255 - byte for byte in sent[7])
    del sent[12]
    result = run("stream", "decode", "-m", live_model, "--raw", stdin=of_records([start, *sent]))
    assert result.code == 0
    assert "17 packets decoded, 2 missing, 0 twice or too late, 1 refused" in result.stderr
    assert len(result.stdout) == 2 * SECONDS * 16_000


def test_a_stream_that_is_cut_off_is_played_as_far_as_it_goes(run: Run, live_model: Path, packets: bytes) -> None:
    result = run("stream", "decode", "-m", live_model, "--raw", stdin=packets[:-3])
    assert result.code == 2
    assert result.stderr.startswith("dtm-codec: cut off")
    assert len(result.stdout) == 2 * 18 * 1280


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\x05DTS\x10\x00", "checksum"),
        (b"\x04RIFF", "not the start of a stream"),
        (b"\xff", "cut off"),
    ],
)
def test_what_is_no_stream_gets_one_line(run: Run, live_model: Path, data: bytes, message: str) -> None:
    result = run("stream", "decode", "-m", live_model, stdin=data)
    assert (result.code, result.stdout) == (2, b"")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "samples whose --rate is given"),
        (b"OggS" + bytes(40), "OggS"),
        (wav_header(16_000)[:30], "cut off"),
        (wav_header(16_000)[:34] + b"\x08\0" + wav_header(16_000)[36:], "8 bits"),
        (wav_header(16_000)[:22] + b"\0\0" + wav_header(16_000)[24:], "0 channels"),
        (wav_header(3), "sample_rate = 3"),
    ],
)
def test_what_is_no_sound_gets_one_line(run: Run, live_model: Path, data: bytes, message: str) -> None:
    result = run("stream", "encode", "-m", live_model, stdin=data)
    assert (result.code, result.stdout) == (2, b"")
    assert message in result.stderr


def test_a_sample_that_is_no_number_is_named_by_its_place_in_the_stream(run: Run, live_model: Path) -> None:
    stereo = np.stack([sweep(SECONDS)] * 2, axis=1).astype("<f4")
    stereo[20_000] = np.inf, -np.inf  # in a later block than the first
    options = ("-m", live_model, "--rate", 16_000, "--channels", 2, "--format", "f32le")
    result = run("stream", "encode", *options, stdin=stereo.tobytes())
    assert result.code == 2
    assert result.stderr == "dtm-codec: the stream holds nan at sample 20000; allowed: finite numbers\n"


def test_stereo_floats_are_mixed() -> None:
    stereo = np.stack([sweep(0.1), -0.5 * sweep(0.1)], axis=1).astype("<f4")
    header = bytearray(wav_header(16_000))
    header[20:24], header[34:36] = b"\x03\0\x02\0", b"\x20\0"
    audio = open_pipe(io.BytesIO(bytes(header) + stereo.tobytes() + b"\0\0\0"), None)
    np.testing.assert_allclose(np.concatenate(list(audio.blocks())), 0.25 * sweep(0.1), atol=1e-6)


@pytest.mark.parametrize(("said", "heard"), [(2000, 1000), (0, 1106), (0x7FFF0000, 1106), (4000, 1106)])
def test_what_follows_the_samples_of_a_wav_file_is_not_heard(said: int, heard: int) -> None:
    """Unless its header does not know how many samples there are."""
    sound = pcm_bytes(sweep(1 / 16))
    header = wav_header(16_000)[:-4] + said.to_bytes(4, "little")
    tags = b"LIST" + (204).to_bytes(4, "little") + b"x" * 204
    blocks = list(open_pipe(io.BytesIO(header + sound + tags), None).blocks())
    samples = np.concatenate(blocks)
    assert samples.size == heard
    np.testing.assert_allclose(samples[:1000], sweep(1 / 16), atol=1e-4)


def test_packets_come_while_speech_goes_on_and_a_reader_may_leave(live_model: Path) -> None:
    command = [sys.executable, "-m", "dtm_codec", "stream", "encode", "-m", str(live_model), "--rate", "16000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(pcm_bytes(sweep(0.5)))
        process.stdin.flush()  # and no end yet
        got = [read_record(process.stdout) for _ in range(1 + 5)]  # 0.5 s have 5 packets whose look-ahead was heard
        assert all(got)
        process.stdout.close()
        try:
            process.stdin.write(pcm_bytes(sweep(2.0)))
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="pipes of a known size")
def test_a_reader_that_stops_makes_the_writer_wait_and_loses_nothing(live_model: Path, packets: bytes) -> None:
    start, *_ = records(packets)
    form, mask = StreamFormat.from_start(start), np.ones(8, bool)
    many = [form.write(Packet(n % SEQUENCES, mask, np.arange(8))) for n in range(1200)]  # 96 s, 20 kB
    data = of_records([start, *many])
    command = [sys.executable, "-m", "dtm_codec", "stream", "decode", "--raw", "-m", str(live_model)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, 4096)
        taken: list[int] = []

        def send() -> None:
            for begin in range(0, len(data), 256):
                os.write(process.stdin.fileno(), data[begin : begin + 256])  # type: ignore[union-attr]
                taken.append(begin)
            process.stdin.close()  # type: ignore[union-attr]

        sender = threading.Thread(target=send)
        sender.start()
        select.select([process.stdout], [], [], 60)  # the first speech is there, and nobody takes it
        before = -1
        while before != len(taken):  # until it takes no more either
            before = len(taken)
            time.sleep(1.0)
        assert taken[-1] < len(data) - 4096
        assert len(process.stdout.read()) == 2 * 1280 * len(many)
        sender.join()


def test_thin_writes_a_smaller_file_of_the_same_length(run: Run, model: Path, tmp_path: Path) -> None:
    write_audio(tmp_path / "long.wav", sweep(4.0), 16_000)
    assert run("encode", "long.wav", "-m", model, "-b", 800).code == 0
    result = run("thin", "long.dtm", "-m", model, "-b", 500, "--json")
    assert result.code == 0, result.stderr
    codec = DTMCodec.from_pretrained(model)
    before, after = (codec.load(name) for name in ("long.dtm", "long.thin.dtm"))
    assert after.bits.total / after.duration_s == pytest.approx(500, abs=14 / 4)
    assert set(after.positions) <= set(before.positions)
    assert json.loads(result.stdout)[0]["total_bps"] == pytest.approx(500, abs=14 / 4)
    assert run("decode", "long.thin.dtm", "-m", model).code == 0
    assert read_audio(tmp_path / "long.thin.decoded.wav")[0].size == 64_000


def test_thin_to_more_than_there_is_or_to_nothing_is_refused(run: Run, model: Path, speech: Path) -> None:
    run("encode", "speech.wav", "-m", model, "-b", 500, "--nominal")
    result = run("thin", "speech.dtm", "-m", model, "-b", 900)
    assert result.code == 2
    assert " ... 50" in result.stderr
    assert "bitrate = 900 bps; allowed: " in result.stderr
    assert "to which rate" in run("thin", "speech.dtm", "-m", model).stderr
    assert not Path("speech.thin.dtm").exists()


def test_thin_does_not_thin_what_it_has_thinned(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write_audio(tmp_path / "folder" / "a.wav", sweep(1.0), 16_000)
    assert run("encode", "folder", "-m", model, "--token-rate", 60).code == 0
    for inputs in (["folder"], ["folder/a.dtm", "folder/a.thin.dtm"], ["folder/*.dtm"]):
        result = run("thin", *inputs, "-m", model, "-b", 500, "--force")
        assert result.code == 0, result.stderr
        assert sorted(path.name for path in Path("folder").iterdir()) == ["a.dtm", "a.thin.dtm", "a.wav"]
    assert run("thin", "folder/a.thin.dtm", "-m", model, "-b", 400).code == 0  # where it stands alone, it is an input
    assert Path("folder/a.thin.thin.dtm").exists()


def test_info_says_what_latency_the_bundled_model_has(run: Run, tmp_path: Path) -> None:
    codec_layout = DTMCodec(replace(preset("s-vfr-50"), dim=8, heads=1, mlp_hidden=8)).layout
    utterance = Encoded(np.array([1]), np.array([True]), 160, "small:00000000", codec_layout)
    (tmp_path / "of-small.dtm").write_bytes(utterance.to_bytes())
    assert "latency" in run("info", "of-small.dtm").stdout.decode()
    stranger = Encoded(np.array([1]), np.array([True]), 160, "stranger:00000000", codec_layout)
    (tmp_path / "of-stranger.dtm").write_bytes(stranger.to_bytes())
    assert "latency" not in run("info", "of-stranger.dtm").stdout.decode()
