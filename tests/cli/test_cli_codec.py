"""Laws of `encode`, `decode` and `info`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from cli_support import Run, sweep

from dtm_codec import DTMCodec
from dtm_codec.models import hub
from dtm_codec.speech.audio import audio_info, read_audio, write_audio

INFO_KEYS = {
    "duration_s",
    "num_samples",
    "model",
    "steps",
    "tokens",
    "keep_ratio",
    "content_bps",
    "position_bps",
    "total_bps",
    "written_bps",
    "overhead_bytes",
    "mode",
}


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# The main job


def test_encode_then_decode_without_any_name_given_leaves_the_original_alone(
    run: Run, speech: Path, model: Path
) -> None:
    original = speech.read_bytes()
    encoded = run("encode", "speech.wav", "--model", model, "--nominal")
    assert encoded.code == 0
    assert encoded.stdout == b""
    assert "speech.wav -> speech.dtm: 1.00 s, " in encoded.stderr
    assert " bps written (compact), 800 nominal (700 content + 100 position)" in encoded.stderr
    decoded = run("decode", "speech.dtm", "--model", model)
    assert decoded.code == 0
    assert names(speech.parent) == {"speech.wav", "speech.dtm", "speech.decoded.wav"}
    assert speech.read_bytes() == original
    assert audio_info("speech.decoded.wav").num_samples == 16_000


def test_the_command_line_gives_what_the_python_api_gives(run: Run, speech: Path, model: Path) -> None:
    codec = DTMCodec.from_pretrained(model, backend="onnx-int8")
    audio, rate = read_audio(speech)
    expected = codec.encode(audio, rate, token_rate=40)
    assert run("encode", "speech.wav", "-m", model, "--token-rate", 40).code == 0
    assert codec.load("speech.dtm") == expected
    assert run("decode", "speech.dtm", "-m", model).code == 0
    np.testing.assert_allclose(read_audio("speech.decoded.wav")[0], codec.decode(expected).clip(-1, 1), atol=1e-4)


@pytest.mark.usefixtures("free_moves")
def test_effort_is_that_of_the_python_api(run: Run, speech: Path, model: Path) -> None:
    codec = DTMCodec.from_pretrained(model)
    audio, rate = read_audio(speech)
    expected = codec.encode(audio, rate, bitrate=700, written=True, effort=1)
    assert run("encode", "speech.wav", "-m", model, "-b", 700, "--effort", 1).code == 0
    assert codec.load("speech.dtm") == expected
    assert expected != codec.encode(audio, rate, bitrate=700, written=True)
    for wrong in ("-1", "1.5", "much"):
        refused = run("encode", "speech.wav", "-m", model, "-o", "none.dtm", "--effort", wrong)
        assert refused.code == 2
        assert "--effort" in refused.stderr
        assert wrong in refused.stderr
    assert not Path("none.dtm").exists()


def test_a_bundled_model_is_found_by_the_id_in_the_file(
    run: Run, speech: Path, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("encode", "speech.wav", "-m", model)
    monkeypatch.setattr("dtm_codec.models.hub.BUNDLED", tmp_path / "bundled")
    missing = run("decode", "speech.dtm")
    model_id = DTMCodec.from_pretrained(model).model_id
    assert missing.code == 2
    assert f"speech.dtm: made by model '{model_id}'; bundled: none; give the folder" in missing.stderr
    shutil.copytree(model, tmp_path / "bundled" / "any-name")
    assert run("decode", "speech.dtm").code == 0


def test_of_several_bundled_models_only_the_one_in_question_is_read(
    run: Run, speech: Path, model: Path, fixed_rate_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("encode", "speech.wav", "-m", model)
    for name, folder in (("small", model), ("a-live-one", fixed_rate_model)):
        shutil.copytree(folder, tmp_path / "bundled" / name)
    monkeypatch.setattr("dtm_codec.models.hub.BUNDLED", tmp_path / "bundled")
    read, read_folder = [], hub.read_folder
    monkeypatch.setattr(hub, "read_folder", lambda folder: read.append(folder.name) or read_folder(folder))
    assert run("decode", "speech.dtm").code == 0
    assert read == ["small"]


def test_another_model_is_refused_with_both_names(run: Run, speech: Path, model: Path, fixed_rate_model: Path) -> None:
    run("encode", "speech.wav", "-m", model)
    refused = run("decode", "speech.dtm", "-m", fixed_rate_model)
    assert refused.code == 2
    for folder in (model, fixed_rate_model):
        assert DTMCodec.from_pretrained(folder).model_id in refused.stderr
    assert not Path("speech.decoded.wav").exists()


@pytest.mark.parametrize(("suffix", "form"), [("wav", "WAV"), ("flac", "FLAC")])
def test_decode_writes_the_format_its_output_is_named_after(
    run: Run, speech: Path, model: Path, suffix: str, form: str
) -> None:
    run("encode", "speech.wav", "-m", model)
    assert run("decode", "speech.dtm", "-m", model, "-o", f"out.{suffix}").code == 0
    assert soundfile.info(f"out.{suffix}").format == form


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_resampling_and_mixing_are_said(run: Run, tmp_path: Path, model: Path, suffix: str) -> None:
    stereo = np.stack([sweep(rate=44_100)] * 2, axis=1)
    soundfile.write(tmp_path / f"x.{suffix}", stereo, 44_100)
    result = run("encode", f"x.{suffix}", "-m", model, "--json")
    assert "resampled from 44100 to 16000 Hz; 2 channels mixed to mono" in result.stderr
    record = json.loads(result.stdout)[0]
    assert (record["input_sample_rate"], record["input_channels"]) == (44_100, 2)
    assert record["num_samples"] == pytest.approx(16_000, abs=1)


# Rates


@pytest.mark.parametrize(
    ("asked", "key", "expected"),
    [
        (("--bitrate", 500), "written_bps", 500),
        (("--bitrate", 500, "--written"), "written_bps", 500),
        (("--bitrate", 500, "--nominal"), "total_bps", 500),
        (("--bitrate", 1_000, "--nominal"), "total_bps", 1_000),
        (("--bitrate", 500, "--raw"), "written_bps", 500),
        (("--bitrate", 500, "--raw"), "total_bps", 500),
        ((), "written_bps", 800),
        (("--quality", "low"), "written_bps", 450),
        (("-q", "low", "--nominal"), "total_bps", 450),
        (("--token-rate", 25), "tokens", 100),
    ],
)
def test_a_rate_is_met(
    run: Run, tmp_path: Path, model: Path, asked: tuple[object, ...], key: str, expected: float
) -> None:
    write_audio(tmp_path / "long.wav", sweep(4.0), 16_000)
    result = run("encode", "long.wav", "-m", model, *asked, "--json")
    assert json.loads(result.stdout)[0][key] == pytest.approx(expected, rel=0.02)


def test_a_larger_tau_keeps_fewer_tokens(run: Run, speech: Path, model: Path) -> None:
    tokens = [
        json.loads(run("encode", "speech.wav", "-m", model, "--tau", tau, "--json", "--force").stdout)[0]["tokens"]
        for tau in (1e-3, 1.0, 1e3)
    ]
    assert tokens[0] > tokens[1] > tokens[2] == 1


def test_another_selector_can_be_asked_for(run: Run, speech: Path, model: Path) -> None:
    run("encode", "speech.wav", "-m", model, "--selector", "stride")
    assert DTMCodec.from_pretrained(model).load("speech.dtm").layout.stride == 2
    assert json.loads(run("info", "speech.dtm", "--json").stdout)["position_bps"] == 0


def test_a_rate_out_of_reach_is_one_line_with_what_can_be_reached(run: Run, speech: Path, model: Path) -> None:
    for asked, said in (
        (("--nominal",), "bitrate = 0.1 bps; allowed: "),
        ((), "bitrate = 0.1 bps as written; allowed: "),
    ):
        result = run("encode", "speech.wav", "-m", model, "--bitrate", 0.1, *asked)
        assert result.code == 2
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert not Path("speech.dtm").exists()


def test_more_bits_than_all_steps_take_are_not_spent(run: Run, speech: Path, model: Path) -> None:
    result = run("encode", "speech.wav", "-m", model, "--bitrate", 1450, "--json")
    assert result.code == 0
    record = json.loads(result.stdout)[0]
    assert record["tokens"] == record["steps"]
    assert "all steps are kept; more than" in result.stderr


def test_a_fixed_rate_is_nominal(run: Run, speech: Path, fixed_rate_model: Path) -> None:
    for asked in ((), ("-b", "800")):
        assert run("encode", "speech.wav", "-m", fixed_rate_model, *asked, "--force").code == 0
    for asked in (("-b", "800", "--written"), ("--quality", "low")):
        refused = run("encode", "speech.wav", "-m", fixed_rate_model, *asked, "-o", "none.dtm")
        assert refused.code == 2
        assert "at a fixed rate; allowed: a nominal bitrate, a token rate or nothing" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--bitrate", 800, "--tau", 1),
        ("--bitrate", 800, "--token-rate", 50),
        ("--quality", "low", "--token-rate", 50),
        ("--quality", "best"),
        ("--tau", 1, "--written"),
        ("--token-rate", 50, "--written"),
        ("--bitrate", 0),
        ("--bitrate", -5),
        ("--token-rate", "nan"),
        ("--tau", "inf"),
        ("--bitrate", "fast"),
        ("--selector", "best"),
        ("--model", "no-such-model"),
        ("--no-such-option",),
        ("-o", "out.wav"),
    ],
)
def test_wrong_usage_exits_2_and_writes_nothing(run: Run, speech: Path, arguments: tuple[object, ...]) -> None:
    result = run("encode", "speech.wav", *arguments)
    assert result.code == 2
    assert result.stdout == b""
    assert str(arguments[0]) in result.stderr or str(arguments[-1]) in result.stderr
    assert names(speech.parent) == {"speech.wav"}


# Which files, and where to


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("a.wav", "deep/b.flac", "deep/er/c.wav"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_audio(path, sweep(0.2), 16_000)
    (tmp_path / "corpus" / "notes.txt").write_text("no audio")
    (tmp_path / "corpus" / ".hidden.wav").write_text("half-written")
    (tmp_path / "corpus" / ".git").mkdir()
    (tmp_path / "corpus" / ".git" / "object.wav").write_text("another program's")
    return tmp_path / "corpus"


def test_a_folder_is_mirrored(run: Run, corpus: Path, model: Path) -> None:
    result = run("encode", "corpus", "-m", model, "-o", "out")
    assert result.code == 0
    assert "3 of 3 files done, 0 failed" in result.stderr
    assert names(Path("out")) == {"a.dtm", "deep/b.dtm", "deep/er/c.dtm"}
    assert run("decode", "out", "-m", model, "-o", "back").code == 0
    assert names(Path("back")) == {"a.wav", "deep/b.wav", "deep/er/c.wav"}


def test_without_an_output_folder_files_go_beside_their_inputs(run: Run, corpus: Path, model: Path) -> None:
    before = names(corpus)
    assert run("encode", "corpus", "-m", model).code == 0
    assert names(corpus) - before == {"a.dtm", "deep/b.dtm", "deep/er/c.dtm"}


@pytest.mark.parametrize("absolute", [True, False])
def test_globs_are_expanded(run: Run, corpus: Path, model: Path, absolute: bool) -> None:
    pattern = f"{corpus if absolute else 'corpus'}/**/*.wav"
    assert run("encode", pattern, "-m", model, "-o", "out").code == 0
    assert names(Path("out")) == {"a.dtm", "c.dtm"}


def test_a_file_that_is_named_twice_is_done_once(run: Run, speech: Path, model: Path) -> None:
    result = run("encode", "speech.wav", "speech.wav", "-m", model)
    assert result.code == 0
    assert Path("speech.dtm").exists()


def test_a_file_whose_name_looks_like_a_glob_is_that_file(run: Run, tmp_path: Path, model: Path) -> None:
    write_audio(tmp_path / "take[1].wav", sweep(0.2), 16_000)
    assert run("encode", "take[1].wav", "-m", model).code == 0
    assert Path("take[1].dtm").exists()


@pytest.mark.parametrize(
    ("output", "expected"), [("x.dtm", "x.dtm"), ("new", "new/speech.dtm"), ("a.b/", "a.b/speech.dtm")]
)
def test_an_output_is_a_file_by_its_suffix_and_else_a_folder(
    run: Run, speech: Path, model: Path, output: str, expected: str
) -> None:
    assert run("encode", "speech.wav", "-m", model, "-o", output).code == 0
    assert Path(expected).is_file()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("encode", "corpus", "-o", "one.dtm"), "one.dtm"),
        (("encode", "corpus", "-o", "-"), "standard output takes one file"),
        (("encode", "-", "-"), "once"),
        (("encode", "nothing-*.wav"), "no file matches"),
        (("encode", "corp*"), "no file matches"),
        (("decode", "corpus"), "no .dtm file in corpus"),
        (("decode", "corpus/a.wav", "-o", "x.mp3"), ".mp3"),
        (("encode", "corpus/a.wav", "-o", "-", "--json"), "--json"),
        (("encode",), "IN"),
    ],
)
def test_inputs_and_outputs_that_do_not_fit_exit_2(
    run: Run, corpus: Path, arguments: tuple[str, ...], reason: str
) -> None:
    before = names(corpus.parent)
    result = run(*arguments)
    assert result.code == 2
    assert reason in result.stderr
    assert names(corpus.parent) == before


def test_stdin_and_stdout_carry_the_files_and_nothing_else(run: Run, speech: Path, model: Path) -> None:
    encoded = run("encode", "-", "-m", model, stdin=speech.read_bytes())
    assert encoded.code == 0
    decoded = run("decode", "-", "-m", model, "-o", "-", stdin=encoded.stdout)
    run("encode", "speech.wav", "-m", model)
    run("decode", "speech.dtm", "-m", model)
    assert encoded.stdout == Path("speech.dtm").read_bytes()
    assert decoded.stdout == Path("speech.decoded.wav").read_bytes()
    assert json.loads(run("info", "-", "--json", stdin=encoded.stdout).stdout)["num_samples"] == 16_000
    assert run("encode", "-", "-o", "named.dtm", "-m", model, stdin=speech.read_bytes()).stdout == b""
    assert Path("named.dtm").read_bytes() == encoded.stdout


# Care for the user's files


def test_nothing_is_overwritten_without_force(run: Run, speech: Path, model: Path) -> None:
    Path("speech.dtm").write_bytes(b"precious")
    refused = run("encode", "speech.wav", "-m", model)
    assert refused.code == 2
    assert "speech.dtm exists; --force overwrites it" in refused.stderr
    assert Path("speech.dtm").read_bytes() == b"precious"
    assert run("encode", "speech.wav", "-m", model, "--force").code == 0
    assert Path("speech.dtm").read_bytes() != b"precious"
    assert run("decode", "speech.dtm", "-m", model, "-o", ".").code == 2


def test_existing_outputs_are_found_before_the_model_is_loaded(run: Run, speech: Path) -> None:
    Path("speech.dtm").write_bytes(b"precious")
    assert "exists" in run("encode", "speech.wav", "--model", "no-such-model").stderr


def test_an_input_is_never_its_own_output(run: Run, speech: Path, model: Path) -> None:
    speech.rename("speech.dtm")
    before = Path("speech.dtm").read_bytes()
    result = run("encode", "speech.dtm", "-m", model, "--force")
    assert result.code == 2
    assert "is the input itself" in result.stderr
    assert Path("speech.dtm").read_bytes() == before


def test_two_inputs_never_share_an_output(run: Run, speech: Path, model: Path) -> None:
    write_audio("speech.flac", sweep(0.3), 16_000)
    result = run("encode", "speech.wav", "speech.flac", "-m", model, "--force")
    assert result.code == 1
    assert "speech.dtm is already the output of speech.wav" in result.stderr
    assert DTMCodec.from_pretrained(model).load("speech.dtm").num_samples == 16_000


def test_a_failure_half_way_leaves_no_file(
    run: Run, speech: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    result = run("encode", "speech.wav", "-m", model)
    assert result.code == 2
    assert "No space left on device" in result.stderr
    assert names(speech.parent) == {"speech.wav"}


# Batches


def test_one_bad_file_does_not_stop_the_others(run: Run, corpus: Path, model: Path) -> None:
    (corpus / "b-bad.wav").write_text("no audio")
    result = run("encode", "corpus", "missing.wav", "-m", model, "-o", "out", "--json")
    assert result.code == 1
    assert "3 of 5 files done, 2 failed" in result.stderr
    assert names(Path("out")) == {"a.dtm", "deep/b.dtm", "deep/er/c.dtm"}
    records = {record["input"]: record for record in json.loads(result.stdout)}
    assert "Format not recognised" in records["corpus/b-bad.wav"]["error"]
    assert "no such file" in records["missing.wav"]["error"]
    good = records["corpus/deep/b.flac"]
    assert good["output"] == "out/deep/b.dtm"
    assert good["bytes"] == Path("out/deep/b.dtm").stat().st_size
    assert good.keys() >= INFO_KEYS

    Path("out/damaged.dtm").write_bytes(Path("out/a.dtm").read_bytes()[:-3])
    decoded = run("decode", "out", "-m", model, "--json")
    assert decoded.code == 1
    assert [Path(record["input"]).name for record in json.loads(decoded.stdout) if "error" in record] == ["damaged.dtm"]


@pytest.mark.parametrize("command", ["encode", "decode", "info"])
def test_a_single_bad_file_is_one_line_and_exit_2(run: Run, tmp_path: Path, model: Path, command: str) -> None:
    (tmp_path / "bad").write_bytes(b"neither audio nor tokens")
    options = () if command == "info" else ("-m", model)
    for name in ("bad", "missing"):
        result = run(command, name, *options)
        assert result.code == 2
        assert result.stdout == b""
        assert len(result.stderr.splitlines()) == 1
        assert name in result.stderr


# info


@pytest.mark.parametrize("mode", ["raw", "compact"])
@pytest.mark.parametrize("kind", ["model", "fixed_rate_model"])
def test_info_says_what_the_file_holds(
    run: Run, speech: Path, request: pytest.FixtureRequest, mode: str, kind: str
) -> None:
    folder = request.getfixturevalue(kind)
    run("encode", "speech.wav", "-m", folder, *(["--raw"] if mode == "raw" else []))
    result = run("info", "speech.dtm", "--json")
    facts = json.loads(result.stdout)
    assert facts.keys() == INFO_KEYS
    encoded = DTMCodec.from_pretrained(folder).load("speech.dtm")
    size = Path("speech.dtm").stat().st_size
    assert facts["mode"] == mode
    assert facts["model"] == encoded.model_id
    assert (facts["duration_s"], facts["num_samples"]) == (1.0, 16_000)
    assert (facts["steps"], facts["tokens"]) == (encoded.mask.size, encoded.codes.size)
    assert facts["keep_ratio"] == encoded.codes.size / encoded.mask.size
    assert facts["content_bps"] == encoded.bits.content
    assert facts["position_bps"] == encoded.bits.position
    assert facts["total_bps"] == encoded.bits.total
    assert facts["overhead_bytes"] <= 24
    assert facts["written_bps"] <= 8 * (size - facts["overhead_bytes"])
    assert facts["written_bps"] > 8 * (size - facts["overhead_bytes"] - 2)  # padding to whole bytes
    if mode == "raw":
        assert facts["written_bps"] == facts["total_bps"]
    else:
        assert facts["written_bps"] < facts["total_bps"]


def test_info_for_people_has_the_same_figures(run: Run, speech: Path, model: Path) -> None:
    run("encode", "speech.wav", "-m", model, "--nominal")
    text = run("info", "speech.dtm").stdout.decode()
    for piece in (DTMCodec.from_pretrained(model).model_id, "50 of 100 steps kept (0.500)", "800.0 bps", ", compact"):
        assert piece in text


# Samples without a header


def test_raw_samples_on_standard_input_are_the_same_sound(run: Run, speech: Path, model: Path) -> None:
    samples, _ = read_audio(speech)
    stereo = np.repeat((samples * 32768).round().astype("<i2"), 2).tobytes()
    run("encode", "speech.wav", "-m", model)
    raw = ("--rate", 16_000, "--channels", 2, "--format", "s16le")
    assert run("encode", "-", "-m", model, *raw, "-o", "raw.dtm", stdin=stereo).code == 0
    assert Path("raw.dtm").read_bytes() == Path("speech.dtm").read_bytes()
    assert run("show", "-", "-m", model, *raw, "-o", "raw.png", stdin=stereo).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("speech.wav", "--rate", 16_000), "allowed: on standard input (-)"),
        (("-", "--channels", 2), "give their --rate too"),
        (("-", "--rate", 16_000, "--channels", 99), "channels = 99; allowed: 1 ... 32"),
        (("-", "--rate", 5), "sample_rate = 5; allowed: a whole number of Hz"),
        (("-", "--rate", 16_000, "--format", "mp3"), "mp3"),
    ],
)
def test_wrong_descriptions_of_raw_samples(run: Run, speech: Path, model: Path, arguments, said: str) -> None:
    refused = run("encode", *arguments, "-m", model, "-o", "x.dtm", stdin=bytes(1000))
    assert refused.code == 2
    assert said in refused.stderr
    assert not Path("x.dtm").exists()
