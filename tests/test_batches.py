"""Padded batches are the same utterances side by side; features are what the quantizer was given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec import DTMCodec, Encoded, Layout, TokenBatch
from dtm_codec.batches import PADDING
from dtm_codec.config import preset
from dtm_codec.errors import AudioError, DTMCodecError, ModelError

TINY = {"dim": 32, "heads": 2, "mlp_hidden": 48, "enc1_layers": 1, "enc2_layers": 1, "dec1_layers": 1, "dec2_layers": 1}
LENGTHS = torch.tensor([16_000, 1, 9_601])


def tiny(name: str) -> DTMCodec:
    torch.manual_seed(0)
    return DTMCodec(replace(preset(name), **TINY))


@pytest.fixture(scope="module")
def codec() -> DTMCodec:
    return tiny("s-vfr-50")


@pytest.fixture(scope="module")
def padded(speech: np.ndarray) -> torch.Tensor:
    """(3, 16000), with noise where there is no utterance any more."""
    return torch.from_numpy(np.stack([speech[start : start + 16_000] for start in (0, 4_000, 9_000)]))


@pytest.mark.parametrize("name", ["s-vfr-50", "s-ffr-50", "s-conv"])
@pytest.mark.parametrize("channels", [True, False])
def test_a_padded_batch_is_its_utterances(name: str, channels: bool, padded: torch.Tensor) -> None:
    codec = tiny(name)
    batch = codec.encode_batch(padded[:, None] if channels else padded, LENGTHS)
    alone = [codec.encode(x[:size].numpy(), 16_000) for x, size in zip(padded, LENGTHS.tolist(), strict=True)]
    assert batch.to_encoded() == alone
    assert (batch.lengths.tolist(), batch.num_samples.tolist()) == ([e.codes.size for e in alone], LENGTHS.tolist())
    assert batch.mask.shape == (3, 100)
    for row, encoded in enumerate(alone):
        size, steps = encoded.codes.size, encoded.mask.size
        assert batch.codes[row].tolist() == encoded.codes.tolist() + [PADDING] * (batch.codes.shape[1] - size)
        assert batch.mask[row].tolist() == encoded.mask.tolist() + [False] * (100 - steps)
        assert batch.is_token[row].sum() == size
        assert batch.steps[row] == steps
    audio, lengths = codec.decode_batch(batch)
    assert audio.shape == (3, 1, 16_000)
    assert lengths.tolist() == LENGTHS.tolist()
    for row, encoded in zip(audio, alone, strict=True):
        assert np.abs(row[0, : encoded.num_samples].numpy() - codec.decode(encoded)).max() < 1e-4
        assert not row[0, encoded.num_samples :].any()


def test_rate_and_sample_rate_are_those_of_encode(codec: DTMCodec, padded: torch.Tensor) -> None:
    batch = codec.encode_batch(padded, sample_rate=8_000, token_rate=25)
    assert batch.num_samples.tolist() == [32_000] * 3
    assert batch.lengths.tolist() == [50] * 3
    named = codec.encode_batch(padded, quality="low")
    assert named.to_encoded() == [codec.encode(x.numpy(), 16_000, quality="low") for x in padded]


@pytest.mark.parametrize("level", [1.0, 0.002])
def test_integers_are_scaled_as_encode_scales_them(codec: DTMCodec, padded: torch.Tensor, level: float) -> None:
    pcm = (padded * level * 32_767).short()
    assert codec.encode_batch(pcm, LENGTHS).to_encoded() == codec.encode(
        [x[:size] for x, size in zip(pcm, LENGTHS.tolist(), strict=True)], 16_000
    )


def test_what_a_language_model_writes_can_be_heard(codec: DTMCodec) -> None:
    codes, durations = torch.tensor([[5, 6, 7], [8, 9, 9]]), torch.tensor([[1, 2, 3], [4, 2, 2]])
    batch = TokenBatch.from_durations(codes, durations, torch.tensor([3, 1]), codec.model_id, codec.layout)
    assert batch.codes.tolist() == [[5, 6, 7], [8, PADDING, PADDING]]
    audio, lengths = codec.decode_batch(batch)
    assert lengths.tolist() == [6 * 160, 4 * 160]
    assert audio.shape == (2, 1, 6 * 160)
    moved = batch.to("cpu")
    assert moved.to_encoded() == batch.to_encoded()


@pytest.mark.parametrize(
    ("shape", "lengths", "message"),
    [
        ((2, 2, 800), None, r"shape \(2, 2, 800\); allowed: \(B, T\)"),
        ((800,), None, r"shape \(800,\)"),
        ((2, 0), None, "not empty"),
        ((2, 800), [800], r"lengths of shape \(1,\) .*; allowed: 2 whole numbers of samples, 1 \.\.\. 800"),
        ((2, 800), [800, 801], r"lengths of 800 \.\.\. 801; allowed: 2 whole"),
        ((2, 800), [800, 0], r"lengths of 0 \.\.\. 800; allowed: 2 whole"),
        ((2, 800), [800.0, 8.0], r"lengths of shape \(2,\) and type torch\.float32"),
    ],
)
def test_batches_that_cannot_be_are_named(
    codec: DTMCodec, shape: tuple[int, ...], lengths: list[float] | None, message: str
) -> None:
    with pytest.raises((AudioError, ModelError), match=message):
        codec.encode_batch(torch.zeros(shape), None if lengths is None else torch.tensor(lengths))


def test_tokens_of_two_models_or_none_make_no_batch(codec: DTMCodec, padded: torch.Tensor) -> None:
    encoded = codec.encode(padded[0].numpy(), 16_000)
    with pytest.raises(ModelError, match="0 utterances"):
        TokenBatch.from_encoded([])
    none, empty = torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long)
    with pytest.raises(ModelError, match="0 utterances"):
        TokenBatch.from_durations(none, none, empty, codec.model_id, codec.layout)
    with pytest.raises(ModelError, match=r"'other:00000000'.*one model and layout"):
        TokenBatch.from_encoded([encoded, replace(encoded, model_id="other:00000000")])
    other = TokenBatch.from_encoded([replace(encoded, model_id="other:00000000")])
    with pytest.raises(ModelError, match=r"encoded by model 'other:00000000'"):
        codec.decode_batch(other)
    spoiled = replace(TokenBatch.from_encoded([encoded]), lengths=torch.tensor([encoded.codes.size - 1]))
    with pytest.raises(DTMCodecError, match="a mask of shape"):
        codec.decode_batch(spoiled)


LAYOUT = Layout(sample_rate=16_000, hop_length=160, token_bits=14, stride=None)
spans = st.lists(st.integers(1, 9), min_size=1, max_size=30)


@given(rows=st.lists(spans, min_size=1, max_size=5), missing=st.integers(0, 159))
def test_a_batch_gives_back_what_went_in(rows: list[list[int]], missing: int) -> None:
    utterances = [
        Encoded.from_durations(range(len(row)), row, "test:00000000", LAYOUT, 160 * sum(row) - missing) for row in rows
    ]
    assert TokenBatch.from_encoded(utterances).to_encoded() == utterances


@pytest.mark.parametrize("name", ["s-vfr-50", "s-avgrep", "s-ffr-fsq"])
def test_features_are_what_the_quantizer_was_given(name: str, speech: np.ndarray) -> None:
    codec = tiny(name)
    codec.backend.piece = 64  # several pieces
    z1, z2, encoded = codec.features(speech, 16_000)
    assert encoded == codec.encode(speech, 16_000)
    assert (z1.shape, z2.shape) == ((encoded.mask.size, 32), (encoded.codes.size, 32))
    with torch.inference_mode():
        assert codec.network.quantizer.encode(torch.from_numpy(z2)).tolist() == encoded.codes.tolist()
    assert np.allclose(z1, codec.stage1(speech, 16_000), atol=1e-5)


def test_features_and_batches_are_the_same_without_torch_inside(speech: np.ndarray) -> None:
    one, other = DTMCodec.from_pretrained(), DTMCodec.from_pretrained(backend="onnx")
    ours, theirs = one.features(speech, 16_000, bitrate=800), other.features(speech, 16_000, bitrate=800)
    assert ours.z1.shape == theirs.z1.shape
    assert np.abs(ours.z1 - theirs.z1).max() < 1e-3 * np.abs(ours.z1).max()
    assert np.mean(ours.encoded.mask != theirs.encoded.mask) < 0.02
    assert np.allclose(one.codebook, other.codebook, atol=1e-6)
    batch = other.encode_batch(torch.from_numpy(speech)[None, None], bitrate=800)
    assert batch.to_encoded() == [theirs.encoded]


def test_features_follow_the_rate(codec: DTMCodec, speech: np.ndarray) -> None:
    sparse = codec.features(torch.from_numpy(speech), 16_000, token_rate=10)
    assert len(sparse.z2) == sparse.encoded.codes.size == 20


def test_the_codebook_has_a_vector_for_every_code(speech: np.ndarray) -> None:
    codec = DTMCodec.from_pretrained()
    codebook = codec.codebook
    assert codebook.shape == (16_384, codec.config.quantizer.dim)
    assert np.allclose(np.linalg.norm(codebook, axis=1), 1, atol=1e-5)
    encoded = codec.encode(speech, 16_000)
    project = codec.network.quantizer.project_out
    projected = codebook[encoded.codes] @ project.weight.numpy().T + project.bias.numpy()
    assert np.allclose(projected, codec.embed(encoded), atol=1e-4)
