"""Every kind of corpus gives its items once, in the same order, however it is cut."""

import io
import json
import os
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec.corpus.manifest import Manifest
from dtm_codec.corpus.sources import open_source
from dtm_codec.errors import DataError
from dtm_codec.speech.utterance import Failure


def items(source, size=4):
    return [item for part in source.parts(size) for item in source.read(part)]


def opened(corpus, tmp_path):
    return open_source(corpus, tmp_path / "listing.jsonl")


def write_tar(path, speech, mode="w"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for recorded in speech:
            record = json.dumps({"speaker": recorded.speaker}).encode()
            members = {"wav": recorded.wav, "json": record} | ({"txt": recorded.text.encode()} if recorded.text else {})
            for suffix, data in members.items():
                member = tarfile.TarInfo(f"{recorded.name}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def table(speech, **extra):
    audio = [{"bytes": recorded.wav, "path": None} for recorded in speech]
    columns = {"audio": audio, "text": [r.text for r in speech], "speaker_id": [r.speaker for r in speech]}
    return pa.table(columns | extra)


@given(st.lists(st.sampled_from(["item", "", "  "]), max_size=30), st.integers(1, 8), st.booleans())
def test_a_manifest_is_read_once_however_it_is_cut(tmp_path_factory, kinds, size, newline_at_end):
    lines = [json.dumps({"audio_filepath": f"é{i}.wav"}) if kind == "item" else kind for i, kind in enumerate(kinds)]
    path = tmp_path_factory.mktemp("cut") / "m.jsonl"
    path.write_text("\n".join(lines) + ("\n" if newline_at_end else ""))
    source = Manifest.scan(path, path.parent, "times")
    found = items(source, size)
    assert [item.id for item in found] == [f"é{i}.wav" for i, kind in enumerate(kinds) if kind == "item"]
    assert source.items == len(found) == sum(part.items for part in source.parts(size))


def test_a_manifest_carries_text_and_speaker(manifest, tmp_path, speech):
    found = items(opened(manifest, tmp_path))
    assert [(i.id, i.text, i.speaker) for i in found] == [(f"{r.name}.wav", r.text, r.speaker) for r in speech]
    assert all(item.audio.is_file() for item in found)


def test_a_folder_lists_its_audio_and_nothing_else(manifest, tmp_path, speech):
    folder = manifest.parent
    (folder / ".hidden.wav").write_bytes(b"")
    (folder / ".git" / "annex").mkdir(parents=True)
    (folder / ".git" / "annex" / "object.wav").write_bytes(speech[0].wav)
    (folder / "notes.txt").write_text("no audio")
    (folder / "phone.m4a").write_bytes(b"audio that cannot be read is listed all the same")
    assert sorted(i.id for i in items(opened(folder, tmp_path))) == sorted(
        [*(f"{r.name}.wav" for r in speech), "phone.m4a"]
    )


def test_linked_folders_are_entered_once(manifest, tmp_path, speech):
    folder = manifest.parent
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "more.wav").write_bytes(speech[0].wav)
    (folder / "link").symlink_to(outside)
    (folder / "0" / "loop").symlink_to(folder)
    found = [item.id for item in items(opened(folder, tmp_path))]
    assert len(found) == len(set(found)) == len(speech) + 1
    assert "link/more.wav" in found


def test_a_folder_of_another_kind_of_bytes_in_names_is_listed(tmp_path, speech):
    folder = tmp_path / "odd"
    folder.mkdir()
    odd = os.fsdecode(bytes(folder) + b"/a\xff.wav")
    Path(odd).write_bytes(speech[0].wav)
    (found,) = items(opened(folder, tmp_path))
    assert found.id == "a\\udcff.wav"
    assert found.audio.read_bytes() == speech[0].wav


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_tars_group_the_files_of_an_utterance(tmp_path, speech, name):
    folder = tmp_path / "tars"
    write_tar(folder / name, speech[:6], "w:gz" if name.endswith("gz") else "w")
    write_tar(folder / "b.tar", speech[6:])
    found = items(opened(folder, tmp_path))
    where = [name] * 6 + ["b.tar"] * 5
    assert [i.id for i in found] == [f"{tar}/{r.name}" for tar, r in zip(where, speech, strict=True)]
    assert [(i.audio, i.text, i.speaker) for i in found] == [(r.wav, r.text, r.speaker) for r in speech]


def ends_of_members(path):
    with tarfile.open(path) as tar:
        return [member.offset_data + -(-member.size // 512) * 512 for member in tar]


@pytest.mark.parametrize("where", ["in a file", "after a file", "in a header"])
def test_a_tar_that_breaks_off_says_so(tmp_path, speech, where):
    path = write_tar(tmp_path / "a.tar", speech)
    end = ends_of_members(path)[len(speech)]
    path.write_bytes(path.read_bytes()[: end + {"in a file": -100, "after a file": 0, "in a header": 100}[where]])
    found = items(opened(path, tmp_path))
    assert [item.audio for item in found[:-1]] == [r.wav for r in speech[: len(found) - 1]]
    assert 0 < len(found) - 1 < len(speech)
    assert isinstance(found[-1], Failure)
    assert "a.tar" in found[-1].id
    assert "not to its end" in found[-1].reason


def test_a_damaged_header_is_not_the_end_of_a_tar(tmp_path, speech):
    path = write_tar(tmp_path / "a.tar", speech)
    data, end = bytearray(path.read_bytes()), ends_of_members(path)[len(speech)]
    data[end : end + 512] = bytes(range(256)) * 2
    path.write_bytes(data)
    assert "not to its end" in items(opened(path, tmp_path))[-1].reason


def test_a_group_without_audio_is_a_problem_not_a_gap(tmp_path, speech):
    path = write_tar(tmp_path / "a.tar", speech[:1])
    with tarfile.open(path, "a") as tar:
        tar.addfile(tarfile.TarInfo("lonely.txt"), io.BytesIO())
    assert items(opened(path, tmp_path))[-1].reason == "no audio among its files: txt"


def test_links_in_a_tar_are_problems_not_gaps(tmp_path, speech):
    path = write_tar(tmp_path / "a.tar", speech[:2])
    with tarfile.open(path, "a") as tar:
        for name, kind in (("soft.wav", tarfile.SYMTYPE), ("hard.wav", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, f"{speech[0].name}.wav"
            tar.addfile(member)
    found = items(opened(path, tmp_path))
    assert [item.audio for item in found[:2]] == [speech[0].wav, speech[1].wav]
    assert ["links" in item.reason for item in found[2:]] == [True, True]


@pytest.mark.parametrize("group_rows", [1, 3, 100])
def test_parquet_is_read_by_row_groups(tmp_path, speech, group_rows):
    folder = tmp_path / "tables"
    folder.mkdir()
    pq.write_table(table(speech), folder / "a.parquet", row_group_size=group_rows)
    pq.write_table(table(speech[:2]), folder / "b.parquet")
    source = opened(folder, tmp_path)
    found = items(source)
    assert source.items == len(found) == len(speech) + 2
    assert [i.id for i in found[-3:]] == ["a.parquet:10", "b.parquet:0", "b.parquet:1"]
    assert [(i.audio, i.text, i.speaker) for i in found[:11]] == [(r.wav, r.text, r.speaker) for r in speech]


def test_parquet_ids_and_paths(tmp_path, manifest, speech):
    paths = [f"corpus/{r.name}.wav" for r in speech]
    ids = [None if i in (2, 5) else i for i in range(len(speech))]
    pq.write_table(pa.table({"path": paths, "id": ids}), tmp_path / "a.parquet")
    found = items(opened(tmp_path / "a.parquet", tmp_path))
    assert [i.id for i in found] == [f"a.parquet:{row}" if i is None else str(i) for row, i in enumerate(ids)]
    assert [i.audio.read_bytes() for i in found] == [r.wav for r in speech]


def test_a_table_that_cannot_be_read_is_an_item_that_fails(tmp_path, speech):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"PAR1 but not really")
    pq.write_table(table(speech), folder / "b.parquet")
    found = items(opened(folder, tmp_path))
    assert found[0].id == "a.parquet:0"
    assert "cannot be read from row 0 on" in found[0].reason
    assert len(found) == 1 + len(speech)


def test_a_row_without_audio_is_an_item_that_fails(tmp_path, speech):
    rows = table(speech[:2]).to_pylist()
    rows[1]["audio"] = None
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = items(opened(tmp_path / "a.parquet", tmp_path))
    assert [isinstance(item, Failure) for item in found] == [False, True]


@pytest.mark.parametrize("note", [b"{", b"[]", b'{"info": null}', b'{"info": {"features": []}}', b"\xff"])
def test_what_datasets_did_not_write_about_a_table_says_nothing(tmp_path, speech, note):
    pq.write_table(table(speech).replace_schema_metadata({b"huggingface": note}), tmp_path / "a.parquet")
    assert [i.audio for i in items(opened(tmp_path / "a.parquet", tmp_path))] == [r.wav for r in speech]


@pytest.mark.parametrize("column", ["text", "id"])
def test_a_row_whose_text_is_not_utf_8_is_an_item_that_fails(tmp_path, speech, column):
    rows = table(speech[:4])
    words = pa.array([b"one", b"caf\xe9", b"three", b"four"], pa.binary())
    latin_1 = pa.StringArray.from_buffers(4, *words.buffers()[1:])  # nobody checks it when it is written
    kept = [name for name in rows.column_names if name != column]
    pq.write_table(rows.select(kept).append_column(column, latin_1), tmp_path / "a.parquet")
    found = items(opened(tmp_path / "a.parquet", tmp_path))
    assert [isinstance(i, Failure) for i in found] == [False, True, False, False]
    assert found[1].id == "a.parquet:1"
    assert "not UTF-8" in found[1].reason


def test_a_dataset_saved_to_disk(tmp_path, speech):
    datasets = pytest.importorskip("datasets")
    rows = [{"clip": {"bytes": r.wav, "path": None}, "sentence": r.text} for r in speech]
    data = datasets.Dataset.from_list(rows).cast_column("clip", datasets.Audio())
    data.save_to_disk(str(tmp_path / "hf"))
    found = items(opened(tmp_path / "hf", tmp_path))
    assert [(i.audio, i.text) for i in found] == [(r.wav, r.text) for r in speech]
    data.to_parquet(str(tmp_path / "hf.parquet"))
    assert [i.audio for i in items(opened(tmp_path / "hf.parquet", tmp_path))] == [r.wav for r in speech]


@pytest.mark.parametrize("writer", [pa.ipc.new_file, pa.ipc.new_stream])
def test_both_arrow_formats_are_read(tmp_path, speech, writer):
    rows = table(speech)
    with writer(tmp_path / "a.arrow", rows.schema) as file:
        file.write_table(rows, max_chunksize=3)
    source = opened(tmp_path / "a.arrow", tmp_path)
    assert [(i.audio, i.text) for i in items(source, 1)] == [(r.wav, r.text) for r in speech]
    assert [part.items for part in source.parts(4)] == [6, 5]


@pytest.mark.parametrize("compare", ["times", "content"])
@pytest.mark.parametrize(
    "kind", ["folder", "manifest", "tar", "parquet", "arrow", "parquet of datasets", "arrow of datasets"]
)
def test_the_fingerprint_sees_a_file_replaced_by_one_of_equal_size(manifest, tmp_path, kind, compare):
    changed = manifest.parent / "0" / "utt00.wav"
    format_name = kind.partition(" ")[0]
    corpus = {"folder": manifest.parent, "manifest": manifest}.get(kind, tmp_path / f"a.{format_name}")
    if format_name in ("parquet", "arrow"):
        write_table_of_paths(corpus, [f"corpus/0/utt{i:02d}.wav" for i in (0, 3)], in_struct="datasets" in kind)
    if kind == "tar":
        changed = corpus
        with tarfile.open(corpus, "w") as tar:
            tar.add(manifest.parent / "0" / "utt00.wav", "a.wav")
    before = open_source(corpus, tmp_path / "listing.jsonl", compare).fingerprint
    data = changed.read_bytes()
    middle = len(data) // 2
    changed.with_name("new").write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    changed.with_name("new").replace(changed)
    assert open_source(corpus, tmp_path / "listing.jsonl", compare).fingerprint != before
    changed.write_bytes(data)
    os.utime(changed, ns=(1, 1))
    after = open_source(corpus, tmp_path / "listing.jsonl", compare).fingerprint
    assert (after == before) == (compare == "content")


def write_table_of_paths(path, names, in_struct):
    rows = pa.table({"audio": [{"bytes": None, "path": name} for name in names] if in_struct else names})
    if path.suffix == ".parquet":
        return pq.write_table(rows, path)
    with pa.ipc.new_stream(path, rows.schema) as file:
        file.write_table(rows)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_table_that_holds_its_audio_is_its_only_file(tmp_path, speech, manifest, suffix):
    """What its rows are called after may change."""
    rows = pa.table({"audio": [{"bytes": r.wav, "path": f"corpus/{r.name}.wav"} for r in speech]})
    if suffix == ".parquet":
        pq.write_table(rows, tmp_path / "a.parquet")
    else:
        with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as file:
            file.write_table(rows)
    before = opened(tmp_path / f"a{suffix}", tmp_path).fingerprint
    (manifest.parent / "0" / "utt00.wav").write_bytes(b"something else")
    assert opened(tmp_path / f"a{suffix}", tmp_path).fingerprint == before


def test_paths_that_no_file_has_are_items_that_fail(tmp_path):
    pq.write_table(pa.table({"audio": ["gone.wav", "", "zero\0.wav", None]}), tmp_path / "a.parquet")
    assert len(items(opened(tmp_path / "a.parquet", tmp_path))) == 4


def test_the_fingerprint_follows_the_corpus(manifest, tmp_path):
    before = opened(manifest.parent, tmp_path).fingerprint
    assert opened(manifest.parent, tmp_path).fingerprint == before
    (manifest.parent / "new.wav").write_bytes(b"")
    assert opened(manifest.parent, tmp_path).fingerprint != before


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            '{"audio_filepath": "a.wav"}\n{"audio_filepath": "a.wav"}',
            "line 2: the id 'a.wav' stands",
        ),
        ('{"audio_filepath": "a.wav"}\nnonsense', "line 2 is not JSON"),
        ('{"text": "no audio"}', "line 1 names no audio"),
        ("[1]", "line 1 names no audio"),
        ('{"audio_filepath": "a.wav", "offset": "1"}', "offset = '1'"),
        ('{"audio_filepath": "a.wav", "offset": -1}', "offset = -1"),
        ('{"audio_filepath": "a.wav", "offset": 0, "duration": Infinity}', "duration = inf"),
        ('{"audio_filepath": "a.wav", "offset": NaN}', "offset = nan"),
    ],
)
def test_a_bad_manifest_is_refused_by_line(tmp_path, lines, message):
    path = tmp_path / "m.jsonl"
    path.write_text(lines)
    with pytest.raises(DataError, match=message):
        opened(path, tmp_path)


def test_what_is_no_corpus_is_refused(tmp_path, manifest, speech):
    for missing in (tmp_path / "nowhere", manifest.parent / "0" / "utt00.wav"):
        with pytest.raises(DataError, match="allowed: an existing folder"):
            opened(missing, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no audio"):
        opened(tmp_path / "empty", tmp_path)
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no audio column"):
        opened(tmp_path / "a.parquet", tmp_path)
    pq.write_table(table(speech[:2], id=["same", "same"]), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="'same' stands there a second time"):
        opened(tmp_path / "b.parquet", tmp_path)
    with pytest.raises(DataError, match="several kinds"):
        opened(tmp_path, tmp_path / "empty")
