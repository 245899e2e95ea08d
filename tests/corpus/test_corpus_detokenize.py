"""Tokens in a table are as good as the utterances they came from."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_helpers import SAMPLE_RATE

from dtm_codec import ModelError
from dtm_codec.corpus import CorpusError, detokenize, detokenizer, tokenize
from dtm_codec.corpus.detokenizer import _file_name
from dtm_codec.speech.audio import audio_bytes, read_audio, write_audio

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def tokens(manifest, tmp_path, tiny_model):
    return tokenize(manifest, tmp_path / "tokens", model=tiny_model, shard_size=4).folder


def test_audio_is_what_direct_decoding_gives(tokens, tmp_path, codec, speech):
    seen = []
    count = detokenize(tokens, tmp_path / "audio", on_progress=lambda done, total: seen.append((done, total)))
    assert count == len(speech) == len(list((tmp_path / "audio").rglob("*.wav")))
    assert seen[-1] == (len(speech), len(speech))
    for recorded in speech:
        direct = codec.decode(codec.encode(*read_audio(recorded.wav)))
        expected, _ = read_audio(audio_bytes(direct, SAMPLE_RATE))
        back, _ = read_audio(tmp_path / "audio" / f"{recorded.name}.wav")
        assert back.shape == expected.shape
        np.testing.assert_allclose(back, expected, atol=2e-4)  # batched matrix products, then 16 bits


def test_one_shard_alone_can_be_turned_back(tokens, tmp_path):
    assert detokenize(tokens / "data" / "train-00001-of-00003.parquet", tmp_path / "audio") == 4


def test_what_is_there_is_overwritten_only_by_force(tokens, tmp_path):
    detokenize(tokens, tmp_path / "audio")
    with pytest.raises(CorpusError, match="exists; --force overwrites it"):
        detokenize(tokens, tmp_path / "audio")
    detokenize(tokens, tmp_path / "audio", force=True)


def test_of_two_processes_one_writes_a_new_file(tokens, tmp_path, monkeypatch):
    def overtaken(path, *arguments, **options):
        path.write_bytes(b"of the other process")
        write_audio(path, *arguments, **options)

    monkeypatch.setattr(detokenizer, "write_audio", overtaken)
    with pytest.raises(CorpusError, match="exists; --force overwrites it"):
        detokenize(tokens, tmp_path / "audio")
    (path,) = (tmp_path / "audio").rglob("*.*")
    assert path.read_bytes() == b"of the other process"
    detokenize(tokens, tmp_path / "audio", force=True)
    assert read_audio(path)[0].size


def test_another_model_does_not_decode_it(tokens, tmp_path):
    with pytest.raises(ModelError, match="encoded by model"):
        detokenize(tokens, tmp_path / "audio", model="random:s-vfr-50")


def test_what_is_no_table_of_tokens_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="no Parquet file"):
        detokenize(tmp_path, tmp_path / "audio")
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    with pytest.raises(CorpusError, match="is no shard of tokens"):
        detokenize(tmp_path / "a.parquet", tmp_path / "audio")
    forged = pa.table({"id": ["a"]}).replace_schema_metadata({b"dtm_codec": b"{"})
    pq.write_table(forged, tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="is no shard of tokens"):
        detokenize(tmp_path / "a.parquet", tmp_path / "audio")


def test_two_rows_never_share_a_file(tmp_path, tiny_model, speech):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("a.wav", "a.flac"):
        (folder / name).write_bytes(speech[0].wav)
    tokenize(folder, tmp_path / "tokens", model=tiny_model)
    with pytest.raises(CorpusError, match="two rows would be written"):
        detokenize(tmp_path / "tokens", tmp_path / "audio")


@pytest.mark.parametrize(
    ("item_id", "name"),
    [
        ("a/b.flac", "a/b.wav"),
        ("/data/b.WAV", "data/b.wav"),
        ("../../etc/b", "etc/b.wav"),
        ("shard.tar/v1.5", "shard.tar/v1.5.wav"),
        ("t.parquet:7", "t.parquet:7.wav"),
    ],
)
def test_an_id_names_a_file_inside_the_folder(item_id, name):
    assert _file_name(item_id).as_posix() == name


def test_an_id_without_a_name_is_refused():
    with pytest.raises(CorpusError, match="gives no file name"):
        _file_name("../..")
