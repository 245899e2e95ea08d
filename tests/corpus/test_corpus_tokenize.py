"""A tokenized corpus has the rows that direct encoding gives, and accounts for every item."""

import dataclasses
import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from corpus_helpers import SAMPLE_RATE, files, recording, write_manifest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from dtm_codec import DTMCodec, DTMCodecError, Encoded, Layout, ModelError, RateError
from dtm_codec.corpus import CorpusError, run, tokenize
from dtm_codec.corpus.run import _identify
from dtm_codec.corpus.schema import ShardWriter, Stamp, read_footer
from dtm_codec.speech.audio import read_audio
from dtm_codec.speech.utterance import Failure, Utterance
from dtm_codec.system.files import _MACHINE

pytestmark = pytest.mark.usefixtures("inline")


def metadata(out):
    return json.loads((out / "metadata.json").read_text())


def expected_rows(codec, speech, **rate):
    for recorded in speech:
        audio, sample_rate = read_audio(recorded.wav)
        encoded = codec.encode(audio, sample_rate, **rate)
        yield {
            "tokens": encoded.tokens.tolist(),
            "durations": encoded.durations.tolist(),
            "num_samples": encoded.num_samples,
            "text": recorded.text,
            "speaker": recorded.speaker,
            "model_id": codec.model_id,
        }


@pytest.mark.parametrize("rate", [{}, {"tau": 0.3}, {"bitrate": 600.0}])
def test_rows_are_what_encode_gives(manifest, tmp_path, tiny_model, codec, speech, rows, rate):
    out = tmp_path / "out"
    tokenize(manifest, out, model=tiny_model, shard_size=4, **rate)
    found = rows(out)
    assert [row.pop("id") for row in found] == [f"{r.name}.wav" for r in speech]
    assert found == list(expected_rows(codec, speech, **rate))
    written = metadata(out)
    assert written["counts"]["utterances"] == len(speech)
    assert written["counts"]["tokens"] == sum(len(row["tokens"]) for row in found)
    seconds = sum(row["num_samples"] for row in found) / SAMPLE_RATE
    assert written["counts"]["hours"] == pytest.approx(seconds / 3600)
    bits = sum(8 * len(row["tokens"]) + sum(row["durations"]) for row in found)
    assert written["rates"]["total_bps"] == pytest.approx(bits / seconds)
    if "bitrate" in rate:
        assert written["rates"]["total_bps"] == pytest.approx(600, rel=0.02)
        assert written["tau"] is None
    else:
        assert written["tau"] == rate.get("tau", codec.backend.tau)


def test_every_kind_of_corpus_gives_the_same_rows(manifest, tmp_path, tiny_model, speech, rows):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for recorded in speech:
            for suffix, data in (("wav", recorded.wav), ("json", json.dumps(vars_of(recorded)).encode())):
                member = tarfile.TarInfo(f"{recorded.name}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    table = [{"audio": {"bytes": r.wav, "path": None}, **vars_of(r)} for r in speech]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "a.parquet", row_group_size=3)
    found = {}
    for corpus in (manifest, tmp_path / "a.tar", tmp_path / "a.parquet", manifest.parent):
        out = tmp_path / f"out-{corpus.name}"
        tokenize(corpus, out, model=tiny_model, shard_size=4)
        found[corpus.name] = [{k: v for k, v in row.items() if k != "id"} for row in rows(out)]
    assert found["a.tar"] == found["a.parquet"] == found["manifest.jsonl"]
    without_text = [row | {"text": None, "speaker": None} for row in found["manifest.jsonl"]]
    assert found["corpus"] == without_text  # a bare folder knows neither


def vars_of(recorded):
    return {"text": recorded.text, "speaker": recorded.speaker}


def test_pandas_and_datasets_read_it_without_our_code(manifest, tmp_path, tiny_model, rows):
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    out = tmp_path / "out"
    tokenize(manifest, out, model=tiny_model, shard_size=4)
    expected = rows(out)
    frame = pandas.read_parquet(out / "data")
    assert list(frame.columns) == ["id", "tokens", "durations", "num_samples", "text", "speaker", "model_id"]
    assert frame["tokens"][0].dtype == frame["durations"][0].dtype == np.uint16
    assert [list(tokens) for tokens in frame["tokens"]] == [row["tokens"] for row in expected]
    data = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert data.to_list() == expected
    assert data.features["tokens"].feature.dtype == "uint16"


def test_files_are_compressed_with_zstd(manifest, tmp_path, tiny_model):
    tokenize(manifest, tmp_path / "out", model=tiny_model)
    (path,) = (tmp_path / "out" / "data").iterdir()
    group = pq.read_metadata(path).row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}


def test_what_cannot_be_tokenized_is_listed_with_its_reason(tmp_path, tiny_model, codec, speech, rows):
    folder = tmp_path / "corpus"
    write_manifest(folder, speech[:3])
    (folder / "manifest.jsonl").unlink()
    (folder / "garbage.wav").write_bytes(b"no audio at all")
    (folder / "empty.wav").write_bytes(b"")
    (folder / "gone.wav").symlink_to(tmp_path / "nowhere")
    soundfile.write(folder / "no-samples.wav", np.zeros(0), SAMPLE_RATE)
    soundfile.write(folder / "short.wav", recording(0, 0.039), SAMPLE_RATE)
    soundfile.write(folder / "enough.wav", recording(0, 0.04), SAMPLE_RATE)
    with_nan = recording(0, 1.0)
    with_nan[77] = np.nan
    soundfile.write(folder / "nan.wav", with_nan, SAMPLE_RATE, subtype="FLOAT")
    soundfile.write(folder / "cut.flac", recording(0, 9.0), SAMPLE_RATE)
    whole = (folder / "cut.flac").read_bytes()
    (folder / "cut.flac").write_bytes(whole[: len(whole) // 2])
    soundfile.write(folder / "cut.wav", recording(0, 2.0), SAMPLE_RATE)
    (folder / "cut.wav").write_bytes((folder / "cut.wav").read_bytes()[: 44 + SAMPLE_RATE])
    summary = tokenize(folder, tmp_path / "out", model=tiny_model, shard_size=2)
    reasons = {failure["id"]: failure["reason"] for failure in metadata(tmp_path / "out")["failures"]}
    assert "garbage.wav" in reasons.pop("garbage.wav")
    assert "empty.wav" in reasons.pop("empty.wav")
    assert "no such file" in reasons.pop("gone.wav")
    assert "no samples" in reasons.pop("no-samples.wav")
    assert "too short: 624 samples at 16000 Hz; allowed: 640" in reasons.pop("short.wav")
    assert "nan at sample 77" in reasons.pop("nan.wav")
    assert reasons.pop("cut.flac")
    assert reasons.pop("cut.wav") == "the file breaks off: 0.50 s of 2.00 s are there"
    assert not reasons
    good = {"enough.wav", *(f"{r.name}.wav" for r in speech[:3])}
    assert {row["id"] for row in rows(tmp_path / "out")} == good
    assert summary.metadata["counts"]["failures"] == 8


@pytest.mark.skipif(sys.platform != "linux", reason="file names of any bytes")
def test_names_need_not_be_utf_8(tmp_path, tiny_model, speech, rows):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, data in ((b"good\xe9.wav", speech[0].wav), (b"bad\xe9.wav", b"no audio")):
        Path(os.fsdecode(bytes(folder) + b"/" + name)).write_bytes(data)
    tokenize(folder, tmp_path / "out", model=tiny_model)
    assert [row["id"] for row in rows(tmp_path / "out")] == ["good\\udce9.wav"]
    (failure,) = metadata(tmp_path / "out")["failures"]
    assert "bad\\udce9.wav" in failure["reason"]


def test_a_folder_with_the_name_of_a_bundled_model_is_not_it(tmp_path, monkeypatch):
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    asked = dict.fromkeys(("bitrate", "token_rate", "tau", "selector")) | {"effort": 0}
    assert _identify("small", "cpu", None, asked).name == "small"


def test_one_backend_computes_a_corpus(manifest, tmp_path, tiny_model, codec, speech, rows, monkeypatch):
    used = []
    load = DTMCodec.from_loaded.__func__

    def noted(cls, loaded, device="cpu", backend=None):
        made = load(cls, loaded, device, backend)
        used.append(made.backend.name)
        return made

    monkeypatch.setattr(DTMCodec, "from_loaded", classmethod(noted))
    for backend in (None, "torch", "onnx-int8"):
        out = tmp_path / str(backend)
        tokenize(manifest, out, model=tiny_model, backend=backend, shard_size=4, workers=2)
        assert metadata(out)["backend"] == (backend or "onnx")
        assert used == 2 * [backend or "onnx"]  # to plan, and to work
        used.clear()
    with pytest.raises(CorpusError, match="begun with backend torch, not onnx;"):
        tokenize(manifest, tmp_path / "torch", model=tiny_model)
    with pytest.raises(ModelError, match="backend = 'tensorflow'; allowed: 'torch'"):
        tokenize(manifest, tmp_path / "other", model=tiny_model, backend="tensorflow")
    assert not (tmp_path / "other").exists()


def test_one_worker_is_no_second_process(manifest, tmp_path, tiny_model, monkeypatch):
    several = files(tokenize(manifest, tmp_path / "two", model=tiny_model, shard_size=4, workers=2).folder)
    monkeypatch.setattr(run, "run_in_processes", lambda *_: pytest.fail("started a process"))
    one = files(tokenize(manifest, tmp_path / "one", model=tiny_model, shard_size=4, workers=1).folder)
    assert one == several


@pytest.mark.usefixtures("free_moves")
def test_effort_is_part_of_the_plan(tmp_path, tiny_model, speech, rows):
    folder, out = tmp_path / "corpus", tmp_path / "out"
    folder.mkdir()
    (folder / "a.wav").write_bytes(speech[0].wav)
    tokenize(folder, out, model=tiny_model, effort=1)
    codec = DTMCodec.from_pretrained(tiny_model)
    audio, rate = read_audio(folder / "a.wav", codec.config.sample_rate)
    assert rows(out)[0]["tokens"] == codec.encode(audio, rate, effort=1).codes.tolist()
    assert rows(out)[0]["tokens"] != codec.encode(audio, rate).codes.tolist()
    assert metadata(out)["effort"] == 1
    assert metadata(out)["backend"] == "torch"
    with pytest.raises(CorpusError, match="begun with effort 1, not 3"):
        tokenize(folder, out, model=tiny_model, effort=3)
    with pytest.raises(DTMCodecError, match=r"effort = -1; allowed: a whole number >= 0"):
        tokenize(folder, tmp_path / "out2", model=tiny_model, effort=-1)


def test_a_shard_of_failures_alone_is_still_a_table(tmp_path, tiny_model, speech, rows):
    datasets = pytest.importorskip("datasets")
    folder, out = tmp_path / "corpus", tmp_path / "out"
    folder.mkdir()
    (folder / "a.wav").write_bytes(b"")
    tokenize(folder, out, model=tiny_model)
    assert rows(out) == []
    assert metadata(out)["rates"]["total_bps"] is None
    (folder / "b.wav").write_bytes(speech[0].wav)
    tokenize(folder, tmp_path / "out2", model=tiny_model, shard_size=1)
    data = datasets.load_dataset(str(tmp_path / "out2"), split="train", cache_dir=str(tmp_path / "cache"))
    assert data["id"][:] == ["b.wav"]


def test_an_id_that_comes_twice_in_a_tar_is_a_failure(tmp_path, tiny_model, speech, rows):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("a", "b", "a"):
            member = tarfile.TarInfo(f"{name}.wav")
            member.size = len(speech[0].wav)
            tar.addfile(member, io.BytesIO(speech[0].wav))
    tokenize(tmp_path / "a.tar", tmp_path / "out", model=tiny_model)
    assert [row["id"] for row in rows(tmp_path / "out")] == ["a.tar/a", "a.tar/b"]
    (failure,) = metadata(tmp_path / "out")["failures"]
    assert failure["id"] == "a.tar/a"


def test_segments_of_a_long_recording(manifest, tmp_path, tiny_model, codec, rows):
    audio = recording(3, 3.0)
    soundfile.write(tmp_path / "long.wav", audio, SAMPLE_RATE, subtype="PCM_16")
    lines = [{"audio_filepath": "long.wav", "offset": start, "duration": 0.5} for start in (0, 0.5, 2)]
    lines.append({"audio_filepath": "long.wav", "offset": 3.5, "duration": 0.5})
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tokenize(tmp_path / "m.jsonl", tmp_path / "out", model=tiny_model)
    found = rows(tmp_path / "out")
    assert [row["id"] for row in found] == ["long.wav@0", "long.wav@0.5", "long.wav@2"]
    read = read_audio(tmp_path / "long.wav")[0]
    for row, start in zip(found, (0, 8_000, 32_000), strict=True):
        assert row["tokens"] == codec.encode(read[start : start + 8_000], SAMPLE_RATE).tokens.tolist()
    assert "none from offset 56000 on" in metadata(tmp_path / "out")["failures"][0]["reason"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RateError("this one cannot be done"), "this one cannot be done"),
        (MemoryError(), "not enough memory"),
        (Fail("Failed to allocate memory for requested buffer of size 6160384"), "not enough memory"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_the_utterance_that_the_codec_refuses_fails(
    manifest, tmp_path, tiny_model, codec, speech, monkeypatch, rows, error, reason
):
    original = type(codec).encode

    def encode(self, audio, *arguments, **options):
        if isinstance(audio, list) and any(x.size == round(0.1 * SAMPLE_RATE) for x in audio):
            raise error
        return original(self, audio, *arguments, **options)

    monkeypatch.setattr(type(codec), "encode", encode)
    tokenize(manifest, tmp_path / "out", model=tiny_model)
    assert metadata(tmp_path / "out")["failures"] == [{"id": "0/utt00.wav", "reason": reason}]
    assert len(rows(tmp_path / "out")) == 10


def test_a_rate_may_be_a_numpy_number(manifest, tmp_path, tiny_model):
    tokenize(manifest, tmp_path / "out", model=tiny_model, bitrate=np.int64(600))
    assert metadata(tmp_path / "out")["bitrate"] == 600


def test_a_second_run_does_nothing_again(manifest, tmp_path, tiny_model):
    out = tmp_path / "out"
    tokenize(manifest, out, model=tiny_model, shard_size=4)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (out / "data").iterdir()}
    (out / "data" / f".{_MACHINE}{'0' * 12}.parquet").write_bytes(b"left over from a kill")
    summary = tokenize(manifest, out, model=tiny_model)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (out / "data").iterdir()} == before
    assert summary.progress.report.utterances == 0
    assert summary.metadata["counts"]["utterances"] == 11


def test_tokens_inside_the_corpus_are_no_part_of_it(manifest, tiny_model):
    corpus = manifest.parent
    out = corpus / "tokens"
    first = tokenize(corpus, out, model=tiny_model, shard_size=4)
    (out / "data" / "train-00001-of-00003.parquet").unlink()
    assert tokenize(corpus, out, model=tiny_model).metadata == first.metadata
    with pytest.raises(CorpusError, match="is the corpus"):
        tokenize(corpus, corpus, model=tiny_model)


def test_a_lost_shard_is_made_again_to_the_byte(manifest, tmp_path, tiny_model):
    out = tmp_path / "out"
    tokenize(manifest, out, model=tiny_model, shard_size=4)
    before = {path.name: path.read_bytes() for path in (out / "data").iterdir()}
    (out / "data" / "train-00001-of-00003.parquet").unlink()
    summary = tokenize(manifest, out, model=tiny_model)
    assert {path.name: path.read_bytes() for path in (out / "data").iterdir()} == before
    assert summary.progress.report.utterances == 4


def test_a_run_is_not_continued_with_other_settings(manifest, tmp_path, tiny_model, speech):
    out = tmp_path / "out"
    tokenize(manifest, out, model=tiny_model, bitrate=600)
    with pytest.raises(CorpusError, match="begun with bitrate 600, not 700"):
        tokenize(manifest, out, model=tiny_model, bitrate=700)
    with pytest.raises(CorpusError, match="begun with bitrate 600, not None"):
        tokenize(manifest, out, model=tiny_model)
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"name": "other"}))
    with pytest.raises(CorpusError, match=r"begun with model_id s-vfr-50:.*, not other:"):
        tokenize(manifest, out, model=other, bitrate=600)
    with pytest.raises(CorpusError, match="begun with shard_size 16, not 3"):
        tokenize(manifest, out, model=tiny_model, bitrate=600, shard_size=3)
    write_manifest(manifest.parent, speech[:5])
    with pytest.raises(CorpusError, match="begun with corpus"):
        tokenize(manifest, out, model=tiny_model, bitrate=600)


def test_a_refused_run_leaves_the_listing_alone(tmp_path, tiny_model, speech):
    out = tmp_path / "out"
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.wav").write_bytes(speech[0].wav)
    tokenize(tmp_path / "a", out, model=tiny_model)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert b"a.wav" in before["files.jsonl"]
    with pytest.raises(CorpusError, match="begun with corpus"):
        tokenize(tmp_path / "b", out, model=tiny_model)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"workers": 0}, CorpusError),
        ({"shard_size": 0}, CorpusError),
        ({"bitrate": 1.0}, RateError),
        ({"bitrate": 600.0, "tau": 1.0}, RateError),
        ({"device": "abacus"}, ModelError),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(manifest, tmp_path, tiny_model, options, error):
    with pytest.raises(error):
        tokenize(manifest, tmp_path / "out", model=tiny_model, **options)
    assert not list(tmp_path.glob("out/data/*"))


def stamp(codebook_size):
    layout = Layout(16_000, 160, (codebook_size - 1).bit_length(), None)
    return Stamp("m", "m:0000", codebook_size, layout)


def utterance(codes, durations, layout):
    return Encoded.from_durations(codes, durations, "m:0000", layout)


def test_a_large_codebook_has_wide_tokens(tmp_path):
    for codebook_size, kind in ((1 << 16, pa.uint16()), ((1 << 16) + 1, pa.uint32())):
        made = stamp(codebook_size)
        with ShardWriter(tmp_path / "a.parquet", made) as writer:
            writer.add(Utterance("a", b""), utterance([codebook_size - 1, 0], [2, 1], made.layout))
            report = writer.finish([])
        table = pq.read_table(tmp_path / "a.parquet")
        assert table.schema.field("tokens").type.value_type == kind
        assert table["tokens"].to_pylist() == [[codebook_size - 1, 0]]
        assert read_footer(tmp_path / "a.parquet") == (made, report)


def test_a_span_beyond_the_column_is_refused_not_cut(tmp_path):
    made = stamp(256)
    with ShardWriter(tmp_path / "a.parquet", made) as writer:
        writer.add(Utterance("longest", b""), utterance([1], [65_535], made.layout))
        with pytest.raises(CorpusError, match="spans 65536 steps; allowed: up to 65535"):
            writer.add(Utterance("longer", b""), utterance([1], [65_536], made.layout))
        writer.finish([])
    assert pq.read_table(tmp_path / "a.parquet")["durations"].to_pylist() == [[65_535]]


def test_rows_are_written_out_when_they_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr("dtm_codec.corpus.schema.ROW_GROUP_TOKENS", 6)
    made = stamp(256)
    with ShardWriter(tmp_path / "a.parquet", made) as writer:
        for index in range(7):
            writer.add(Utterance(str(index), b""), utterance([1, 2], [1, 1], made.layout))
        writer.finish([])
    read = pq.ParquetFile(tmp_path / "a.parquet")
    assert [read.metadata.row_group(i).num_rows for i in range(read.num_row_groups)] == [3, 3, 1]
    assert read.read()["id"].to_pylist() == [str(i) for i in range(7)]


def test_reports_add_up():
    from dtm_codec.corpus.schema import ShardReport

    first, second = (
        ShardReport(1, 2, 3, 4, 5, 6, (Failure("a", "b"),)),
        ShardReport(10, 20, 30, 40, 50, 60, (Failure("c", "d"),)),
    )
    total = first + second
    assert dataclasses.astuple(total)[:6] == (11, 22, 33, 44, 55, 66)
    assert [failure.id for failure in total.failures] == ["a", "c"]
