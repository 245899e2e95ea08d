"""Any codec in a table: folders of decoded audio, programs, and audio that a run has kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dtm_codec.errors import DTMCodecError
from dtm_codec.evaluation import systems
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.runner import evaluate
from dtm_codec.metrics.base import SAMPLE_RATE, Samples
from dtm_codec.specs import Spec
from dtm_codec.speech.audio import read_audio, resample, write_audio
from dtm_codec.speech.matching import match

COPY = f"{sys.executable} -c 'import shutil, sys; shutil.copy(*sys.argv[1:])' {{in}} {{out}}"


@pytest.fixture
def decoded(manifest: Path, tmp_path: Path) -> Path:
    """Files for two of the three utterances at another rate, in other formats, and one for nobody."""
    folder = tmp_path / "my codec"
    for name, rate in (("0.flac", 48_000), ("deep/1.wav", 8_000), ("stranger.wav", 16_000)):
        source = manifest.parent / f"{Path(name).stem if name[0] != 's' else 2}.wav"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_audio(path, resample(read_audio(source, SAMPLE_RATE)[0], SAMPLE_RATE, rate), rate)
    return folder


def test_a_folder_is_matched_by_name_and_what_does_not_match_is_listed(
    manifest: Path, decoded: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    name = f"folder:{decoded}?bps=750&name=Mine"
    summary = evaluate([name, "identity"], ["si-sdr"], read_data(manifest), tmp_path / "run")
    mine = summary.systems[name]
    assert mine.title == "Mine"
    assert mine.bps is not None
    assert mine.bps.total == pytest.approx(750)
    assert mine.metrics["si-sdr"].n == 2
    assert mine.metrics["si-sdr"].low > 3, "in time, and the same sound, if only up to 4 kHz"
    assert mine.remarks == ("no file for 1 of the utterances: 2.wav", "1 files match none: stranger.wav")
    assert list(mine.failures) == ["2.wav"]


def test_processes_match_folders_as_one_process_does(manifest: Path, decoded: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    name = f"folder:{decoded}"
    one, two = (
        evaluate([name], ["si-sdr"], read_data(manifest), tmp_path / str(jobs), jobs=jobs).systems[name]
        for jobs in (1, 2)
    )
    assert one == two
    assert one.bps is None, "nobody said what was transmitted"


def test_a_path_counts_before_a_name_and_a_name_only_if_it_is_the_only_one(tmp_path: Path) -> None:
    silence = np.zeros(100, np.float32)
    for name in ("a/1.wav", "b/1.wav", "c/2.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_audio(tmp_path / name, silence, 16_000)
    found = match(tmp_path, ["a/1.flac", "/somewhere/2.mp3", "x/1.wav"])
    assert {name: path.relative_to(tmp_path).as_posix() for name, path in found.files.items()} == {
        "a/1.flac": "a/1.wav",
        "/somewhere/2.mp3": "c/2.wav",
    }
    assert found.missing == ("x/1.wav",)
    assert found.extra == ("b/1.wav",)
    assert match(tmp_path, ["p/2.wav", "q/2.wav"]).files == {}, "one file is not two utterances"
    write_audio(tmp_path / "a" / "1.flac", silence, 16_000)
    with pytest.raises(DTMCodecError, match="one utterance"):
        match(tmp_path, [])


def test_a_changed_file_is_another_system(decoded: Path) -> None:
    before = systems.build(f"folder:{decoded}").identity
    assert systems.build(f"folder:{decoded}").identity == before
    audio, rate = read_audio(decoded / "0.flac")
    audio[-1] += 0.1
    write_audio(decoded / "0.flac", audio, rate)
    assert systems.build(f"folder:{decoded}").identity != before


def test_a_recording_of_another_length_is_not_scored(decoded: Path, speech: Samples) -> None:
    system = systems.build(f"folder:{decoded}")
    system.expect(["0.wav"])
    with pytest.raises(DTMCodecError, match=r"1\.20 s of an utterance of 2\.00 s"):
        system.round_trip(speech, "0.wav")


def test_a_delay_is_taken_away(tmp_path: Path, speech: Samples) -> None:
    late = np.concatenate([np.zeros(320, np.float32), speech])
    write_audio(tmp_path / "u.wav", late, SAMPLE_RATE)
    system = systems.build(f"folder:{tmp_path}?delay=20")
    assert system.round_trip(speech, "u.wav")[1] == pytest.approx(speech, abs=1e-4)


def test_a_command_is_run_and_its_bits_are_the_size_of_what_it_writes(speech: Samples) -> None:
    line = f"{COPY} && head -c 123 {{in}} > {{bits}}.opus"
    coded, decoded = systems.build(f"command:{line}?name=Copy").round_trip(speech, "u")
    assert decoded == pytest.approx(speech, abs=1e-4)
    assert coded.bits is not None
    assert coded.bits.total == coded.written == 123 * 8
    assert systems.build(f"command:{COPY}").round_trip(speech, "u")[0].bits is None
    rated = systems.build(f"command:{COPY}?bps=1000").round_trip(speech, "u")[0].bits
    assert rated is not None
    assert rated.total == 2000


def test_the_marks_of_a_shell_are_no_options() -> None:
    assert Spec.parse("command:a {in} | b > {out} && c ?").argument == "a {in} | b > {out} && c ?"
    parsed = Spec.parse("command:a {in} && b c?d {out}?name=X y&bps=8")
    assert (parsed.argument, parsed.options) == ("a {in} && b c?d {out}", {"name": "X y", "bps": "8"})
    assert Spec.parse(parsed.text) == parsed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("echo oops >&2; echo worse >&2; false {in} {out}", "failed: worse"),
        ("exit 3; {in} {out}", "failed: status 3"),
        ("true {in} {out}", "wrote no {out}"),
        (f"{COPY} && true {{bits}}", "wrote no {bits}"),
        ("echo nothing | tee {out} {in}", "cannot read"),
        ("no-such-program {in} {out}", "no-such-program"),
        ("sleep 60; cp {in} {out}?timeout=0.2", "took more than 0.2 s"),
    ],
)
def test_a_program_that_fails_says_why_in_one_line(line: str, message: str, speech: Samples) -> None:
    started = time.monotonic()
    with pytest.raises(DTMCodecError) as error:
        systems.build(f"command:{line}").round_trip(speech, "u")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "name",
    [
        "folder",
        "folder:nowhere?bps=0",
        "folder:nowhere?rate=8",
        "command:cp {in} somewhere",
        "command:cp {in} {out} {bits}?bps=800",
        "command",
    ],
)
def test_a_wrong_name_is_one_clear_line(name: str) -> None:
    with pytest.raises(DTMCodecError, match=r"allowed|known") as error:
        systems.build(name)
    assert "\n" not in str(error.value)


def test_a_folder_with_nothing_for_the_data_is_refused_before_anything_runs(manifest: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, message in (("empty", "no file for any utterance"), ("nowhere", "is no folder")):
        with pytest.raises(DTMCodecError, match=message):
            evaluate([f"folder:{tmp_path / folder}"], ["si-sdr"], read_data(manifest), tmp_path / "run")
    with pytest.raises(DTMCodecError, match="can be run"):
        systems.build(f"folder:{tmp_path}").encode(np.zeros(100, np.float32))


# Audio that is kept


def test_kept_audio_is_what_was_judged_and_can_be_judged_as_a_folder(manifest: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    data = read_data(manifest)
    first = evaluate(["lowpass"], ["stoi"], data, tmp_path / "run", save_audio=True)
    rows = parquet.read_table(tmp_path / "run" / "utterances.parquet").to_pylist()
    folder = (tmp_path / "run" / rows[0]["audio"]).parent
    assert len(list(folder.glob("*.flac"))) == len(data)
    reference, rate = read_audio(tmp_path / "run" / rows[0]["reference_audio"])
    assert rate == SAMPLE_RATE
    assert reference == pytest.approx(data[0].read(SAMPLE_RATE)[0], abs=1e-4)
    name = f"folder:{folder}"
    second = evaluate([name], ["stoi"], data, tmp_path / "again")
    assert second.systems[name].metrics["stoi"].mean == pytest.approx(
        first.systems["lowpass"].metrics["stoi"].mean, abs=1e-3
    )
    assert second.systems[name].remarks == ()


def test_a_run_that_kept_no_audio_gets_it_later_without_judging_again(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    from dtm_codec.metrics.signal import STOI

    data, measured = read_data(manifest), []
    measure: Callable[..., object] = STOI.measure
    monkeypatch.setattr(STOI, "measure", lambda self, sample: measured.append(1) or measure(self, sample))
    before = evaluate(["lowpass"], ["stoi"], data, tmp_path)
    assert not (tmp_path / "audio").exists()
    after = evaluate(["lowpass"], ["stoi"], data, tmp_path, save_audio=True)
    assert len(list((tmp_path / "audio").rglob("*.flac"))) == 2 * len(data)
    assert after == before
    assert len(measured) == len(data)


def test_audio_of_an_earlier_recording_does_not_stay_under_its_name(tmp_path: Path, speech: Samples) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_audio(tmp_path / "u.wav", speech, SAMPLE_RATE)
    evaluate(["identity"], ["si-sdr"], read_data(tmp_path / "u.wav"), tmp_path / "run", save_audio=True)
    write_audio(tmp_path / "u.wav", speech / 2, SAMPLE_RATE)
    evaluate(["identity"], ["si-sdr"], read_data(tmp_path / "u.wav"), tmp_path / "run")
    assert parquet.read_table(tmp_path / "run" / "utterances.parquet").to_pylist()[0]["audio"] is None


def test_names_of_utterances_never_leave_the_folder(tmp_path: Path, speech: Samples) -> None:
    pytest.importorskip("pyarrow")
    write_audio(tmp_path / "u.wav", speech, SAMPLE_RATE)
    names = ("../../escape", "/etc/passwd", "a/../b:c", "x" * 300, "same.wav", "same.flac")
    (tmp_path / "m.jsonl").write_text("".join(f'{{"audio_filepath": "u.wav", "id": "{name}"}}\n' for name in names))
    evaluate(["identity"], ["si-sdr"], read_data(tmp_path / "m.jsonl"), tmp_path / "run", save_audio=True)
    kept = list((tmp_path / "run" / "audio" / "reference").rglob("*.flac"))
    assert len(kept) == len(names)
    assert {path.name for path in tmp_path.iterdir()} == {"u.wav", "m.jsonl", "run"}


def test_two_systems_of_one_title_are_told_apart(manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for folder, gain in (("a", 0.5), ("b", 0.25)):
        for source in manifest.parent.glob("*.wav"):
            (tmp_path / folder).mkdir(exist_ok=True)
            write_audio(tmp_path / folder / source.name, gain * read_audio(source, SAMPLE_RATE)[0], SAMPLE_RATE)
    names = [f"folder:{tmp_path / folder}?name=mine" for folder in "ab"]
    summary = evaluate([*names, "identity"], ["si-sdr"], read_data(manifest), tmp_path / "run")
    one, other, reference = summary.systems.values()
    assert (one.title, other.title) == (f"mine ({one.identity})", f"mine ({other.identity})")
    assert one.series != other.series
    assert reference.identity not in reference.title
