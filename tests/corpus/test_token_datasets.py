"""Rows of a tokenized corpus in PyTorch: every one, exactly once, however many processes share them."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from corpus_helpers import Speech, one_thread, run_inline, write_manifest
from torch.utils.data import DataLoader

from dtm_codec import DTMCodec, corpus
from dtm_codec.config import preset
from dtm_codec.corpus import CorpusError, TokenDataset, TokenStream, collate, detokenize, run, tokenize
from dtm_codec.corpus import schema as corpus_schema
from dtm_codec.speech.audio import audio_info
from dtm_codec.system.optional import MissingPackageError


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, speech: list[Speech], tiny_model: Path) -> Path:
    """11 utterances in 4 files."""
    folder = tmp_path_factory.mktemp("datasets")
    with pytest.MonkeyPatch.context() as patch, one_thread():
        patch.setattr(run, "run_in_processes", run_inline)
        tokenize(write_manifest(folder / "corpus", speech), folder / "out", model=tiny_model, shard_size=3)
    return folder / "out"


def test_rows_by_number(out: Path, speech: list[Speech], codec: DTMCodec) -> None:
    rows = TokenDataset(out)
    assert (len(rows), rows.model_id, rows.codebook_size) == (11, codec.model_id, 256)
    assert [row.id for row in rows] == [f"{s.name}.wav" for s in speech]
    assert [(row.text, row.speaker) for row in rows] == [(s.text, s.speaker) for s in speech]
    for row, recorded in zip(rows, speech, strict=True):
        assert row.encoded.duration_s == pytest.approx(recorded.audio.size / recorded.sample_rate, abs=1e-4)
    assert rows[-1].id == rows[10].id
    for index in (11, -12):
        with pytest.raises(IndexError, match=rf"row {index}; allowed: -11 \.\.\. 10"):
            rows[index]


def test_batches_of_a_loader_decode_to_the_rows(out: Path, codec: DTMCodec) -> None:
    rows = TokenDataset(out)
    by_id = {row.id: row for row in rows}
    seen = []
    for ids, tokens, texts, speakers in DataLoader(rows, batch_size=4, shuffle=True, collate_fn=collate):
        seen += ids
        assert tokens.codes.shape == tokens.durations.shape == (len(ids), int(tokens.lengths.max()))
        assert tokens.to_encoded() == [by_id[name].encoded for name in ids]
        assert list(zip(texts, speakers, strict=True)) == [(by_id[name].text, by_id[name].speaker) for name in ids]
        audio, lengths = codec.decode_batch(tokens)
        assert lengths.tolist() == [by_id[name].encoded.num_samples for name in ids]
        assert np.abs(audio[0, 0, : lengths[0]].numpy() - codec.decode(by_id[ids[0]].encoded)).max() < 1e-4
    assert sorted(seen) == sorted(by_id)


def test_a_stream_gives_the_rows_in_their_order(out: Path) -> None:
    streamed, held = list(TokenStream(out)), list(TokenDataset(out))
    assert [row.id for row in streamed] == [row.id for row in held]
    assert [row.encoded for row in streamed] == [row.encoded for row in held]
    one_file = sorted((out / "data").glob("*.parquet"))[1]
    assert [row.id for row in TokenStream(one_file)] == [row.id for row in held[3:6]]


@pytest.mark.parametrize("world_size", [1, 2, 3, 16])
@pytest.mark.parametrize("shuffle_buffer", [0, 4])
def test_processes_share_the_rows(out: Path, world_size: int, shuffle_buffer: int) -> None:
    shares = [
        [row.id for row in TokenStream(out, shuffle_buffer=shuffle_buffer, rank=rank, world_size=world_size)]
        for rank in range(world_size)
    ]
    assert Counter(name for share in shares for name in share) == Counter(row.id for row in TokenDataset(out))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_equal_shares_leave_out_as_little_as_possible(out: Path) -> None:
    shares = [[row.id for row in TokenStream(out, rank=rank, world_size=4, equal_shares=True)] for rank in range(4)]
    assert [len(share) for share in shares] == [2] * 4
    assert len({name for share in shares for name in share}) == 8


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_of_a_loader_share_the_rows(out: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the second of two processes, as torchrun tells them."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = DataLoader(TokenStream(out), batch_size=2, num_workers=workers, collate_fn=collate)
    ids = [name for batch in loader for name in batch.ids]
    assert sorted(ids) == sorted(row.id for row in list(TokenDataset(out))[5:])


def test_an_epoch_has_an_order_of_its_own_also_in_workers_that_stay(out: Path) -> None:
    stream = TokenStream(out, shuffle_buffer=4, seed=3)
    loader = DataLoader(stream, batch_size=1, num_workers=1, persistent_workers=True, collate_fn=collate)
    orders = []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        orders.append([batch.ids[0] for batch in loader])
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != [row.id for row in TokenStream(out)]


def test_row_groups_outside_of_a_share_are_not_read(
    out: Path, speech: list[Speech], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: None
) -> None:
    """Long recordings make many row groups of one file."""
    monkeypatch.setattr(corpus_schema, "ROW_GROUP_TOKENS", 60)
    one_file = tokenize(write_manifest(tmp_path / "corpus", speech), tmp_path / "out", model=tiny_model, shard_size=11)
    rows = list(TokenDataset(one_file.folder))
    assert [row.encoded for row in rows] == [row.encoded for row in TokenDataset(out)]
    read = []
    original = corpus_schema.pq.ParquetFile.iter_batches

    def watched(self, *arguments, row_groups, **more):
        read.extend(row_groups)
        return original(self, *arguments, row_groups=row_groups, **more)

    monkeypatch.setattr(corpus_schema.pq.ParquetFile, "iter_batches", watched)
    groups = corpus_schema.pq.ParquetFile(next(one_file.folder.glob("data/*"))).num_row_groups
    assert [row.id for row in TokenStream(one_file.folder, rank=3, world_size=4)] == [row.id for row in rows[8:]]
    assert 0 < len(read) < groups


def test_what_cannot_be_is_named(out: Path, tmp_path: Path, codec: DTMCodec) -> None:
    with pytest.raises(CorpusError, match="no Parquet file at"):
        TokenDataset(tmp_path)
    with pytest.raises(CorpusError, match="shuffle_buffer = -1"):
        TokenStream(out, shuffle_buffer=-1)
    with pytest.raises(CorpusError, match=r"rank = 2; allowed: 0 \.\.\. 1"):
        TokenStream(out, rank=2, world_size=2)
    with pytest.raises(CorpusError, match="both or neither"):
        TokenStream(out, rank=2)


def test_corpora_of_two_models_are_not_mixed(
    out: Path, speech: list[Speech], codec: DTMCodec, tmp_path: Path, inline: None
) -> None:
    other = DTMCodec(replace(codec.config, norm_eps=0.5))
    other.save_pretrained(tmp_path / "model")
    both = tmp_path / "both"
    tokenize(write_manifest(tmp_path / "corpus", speech[:2]), both, model=tmp_path / "model", tau=1.0)
    (both / "data" / "a.parquet").write_bytes(next(out.glob("data/*.parquet")).read_bytes())
    with pytest.raises(CorpusError, match=f"{other.model_id}.*{codec.model_id}.*one model"):
        TokenDataset(both)


def test_tokens_at_a_fixed_rate_become_speech_again(tmp_path: Path, speech: list[Speech], inline: None) -> None:
    """A model with convolutions decodes nothing but its own stride, so the shards have to say that they have it."""
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    DTMCodec(replace(preset("s-conv"), dim=32, heads=2, mlp_hidden=48, **sizes)).save_pretrained(tmp_path / "model")
    corpus = write_manifest(tmp_path / "corpus", speech[3:5])
    out = tokenize(corpus, tmp_path / "out", model=tmp_path / "model").folder
    rows = list(TokenDataset(out))
    assert [row.encoded.layout.stride for row in rows] == [2, 2]
    assert detokenize(out, tmp_path / "audio") == 2
    for row in rows:
        assert audio_info(tmp_path / "audio" / row.id).num_samples == row.encoded.num_samples


def test_without_torch_its_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match=r"'torch': pip install 'dtm-codec\[torch\]'"):
        _ = corpus.TokenDataset
