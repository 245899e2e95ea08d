"""Codes that are chosen again beside those of their neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dtm_codec import DTMCodec, QuantizerConfig, preset
from dtm_codec.coding import chain
from dtm_codec.config import REVIEW_SIGHT
from dtm_codec.errors import ConfigError
from dtm_codec.nn.quantizers import VectorQuantizer
from dtm_codec.speech.audio import read_audio, sample_path

REVIEWED = QuantizerConfig(codebook_size=256, review=24)
TIMES = torch.tensor([0, 1, 2, 3, 5, 8, 9, 10, 14, 15, 16, 17, 20, 21, 22, 0, 2, 3, 4, 5])
"""Two utterances; the second begins at token 15."""


def a_quantizer(moves: float) -> VectorQuantizer:
    torch.manual_seed(0)
    quantizer = VectorQuantizer(16, REVIEWED)
    quantizer.initialize()
    assert quantizer.review is not None
    torch.nn.init.normal_(quantizer.review.out.weight, std=moves)
    return quantizer


def a_codec() -> DTMCodec:
    torch.manual_seed(0)
    layers = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    config = replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, quantizer=REVIEWED, **layers)
    codec = DTMCodec(config)
    torch.nn.init.normal_(codec.network.quantizer.review.out.weight, std=0.3)
    return codec


def test_at_first_the_choice_of_the_encoder_stands() -> None:
    quantizer, z2 = a_quantizer(0.0), torch.randn(20, 16)
    similarities = F.normalize(quantizer.project_in(z2), dim=-1) @ quantizer.vectors().T
    assert torch.equal(quantizer.encode(z2, TIMES), similarities.argmax(-1))
    assert not torch.equal(a_quantizer(1.0).encode(z2, TIMES), similarities.argmax(-1))


def test_a_code_depends_on_its_neighbours_and_on_no_other_utterance() -> None:
    quantizer, z2 = a_quantizer(1.0), torch.randn(20, 16)
    codes = quantizer.encode(z2, TIMES)
    reached = set()
    for token in range(20):
        other = z2.clone()
        other[token] += torch.randn(16)
        changed = (quantizer.encode(other, TIMES) != codes).nonzero().flatten().tolist()
        assert all((token < 15) == (other_token < 15) for other_token in changed)
        reached |= {other_token - token for other_token in changed}
    assert {-1, 1} <= reached
    assert max(map(abs, reached)) <= REVIEWED.reach
    assert torch.equal(quantizer.encode(z2[15:], TIMES[15:]), codes[15:])


def test_what_a_turn_does_is_seen_by_the_next() -> None:
    """With sight of three tokens and one turn, nothing could come from further away."""
    quantizer, z2, times = a_quantizer(1.0), torch.randn(400, 16), torch.arange(400)
    codes, furthest = quantizer.encode(z2, times), 0
    for token in range(50, 350, 10):
        other = z2.clone()
        other[token] = torch.randn(16)
        changed = (quantizer.encode(other, times) != codes).nonzero().flatten()
        furthest = max([furthest, *(changed - token).abs().tolist()])
    assert REVIEW_SIGHT < furthest <= REVIEWED.reach


def test_only_moves_learn_from_what_the_neighbours_chose() -> None:
    quantizer, z2 = a_quantizer(0.1), torch.randn(20, 16, requires_grad=True)
    output = quantizer(z2, TIMES)
    assert torch.equal(output.codes, quantizer.encode(z2, TIMES))
    output.values[4].sum().backward()
    assert z2.grad is not None
    assert (z2.grad.abs().sum(-1) > 0).nonzero().flatten().tolist() == [4]
    assert quantizer.review is not None
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in quantizer.review.parameters())


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_batches_and_pieces_give_the_codes_of_the_whole(backend: str, tmp_path, monkeypatch) -> None:
    a_codec().save_pretrained(tmp_path / "model")
    codec = DTMCodec.from_pretrained(tmp_path / "model", backend=backend)
    speech, _ = read_audio(sample_path(), 16_000)
    some = [speech, speech[:20_000], speech[5000:5001]]
    alone = [codec.encode(x, 16_000, token_rate=50) for x in some]
    for together, own in zip(codec.encode(some, 16_000, token_rate=50), alone, strict=True):
        assert np.array_equal(together.codes, own.codes)
    monkeypatch.setattr(chain, "BLOCK", 16)
    assert np.array_equal(codec.encode(speech, 16_000, token_rate=50).codes, alone[0].codes)


def test_a_review_needs_a_codebook_and_sight_of_what_comes() -> None:
    with pytest.raises(ConfigError, match=r"quantizer\.review = 8; allowed: 0 with kind 'fsq'"):
        replace(preset("ffr-fsq").quantizer, review=8)
    with pytest.raises(ConfigError, match=r"quantizer\.review = 24; allowed: 0 with a limited enc2_lookahead"):
        replace(preset("s-vfr-50"), quantizer=REVIEWED, enc2_lookahead=2)
    with pytest.raises(ConfigError, match=r"quantizer\.review = -1"):
        QuantizerConfig(review=-1)
