"""Quantizers: the nearest code, straight-through gradients, codes that decode to what was quantized."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dtm_codec.config import QuantizerConfig
from dtm_codec.nn.quantizers import FiniteScalarQuantizer, VectorQuantizer, build_quantizer

FSQ = QuantizerConfig(kind="fsq", codebook_size=64_000, levels=(5, 5, 5, 8, 8, 8))


def test_vq_chooses_the_nearest_code_by_cosine() -> None:
    quantizer = VectorQuantizer(16, 512, 8)
    z2 = torch.randn(600, 16)
    latents = F.normalize(quantizer.project_in(z2), dim=-1)
    similarities = latents @ F.normalize(quantizer.codebook, dim=-1).T
    assert torch.equal(quantizer(z2).codes, similarities.argmax(-1))


def test_codes_decode_to_the_quantized_values() -> None:
    for config in (QuantizerConfig(codebook_size=512), FSQ):
        quantizer = build_quantizer(config, 16)
        z2 = 3 * torch.randn(200, 16)
        output = quantizer(z2)
        assert output.codes.dtype == torch.int64
        assert output.codes.min() >= 0
        assert output.codes.max() < config.codebook_size
        assert torch.equal(quantizer.encode(z2), output.codes)
        torch.testing.assert_close(quantizer.decode(output.codes), output.values, atol=1e-5, rtol=1e-5)


def test_vq_gradients_are_straight_through_and_reach_codebook_and_encoder() -> None:
    quantizer = VectorQuantizer(16, 64, 8)
    z2 = torch.randn(50, 16, requires_grad=True)
    output = quantizer(z2)
    (output.values.square().sum() + output.loss).backward()
    assert z2.grad is not None
    assert z2.grad.abs().sum() > 0
    used = torch.zeros(64, dtype=torch.bool)
    used[output.codes] = True
    moved = quantizer.codebook.grad.abs().sum(-1) > 0
    assert torch.equal(moved, used)


def test_a_bypassed_quantizer_lets_vectors_through_and_its_codebook_follows() -> None:
    for config in (QuantizerConfig(codebook_size=64), FSQ):
        quantizer = build_quantizer(config, 16)
        z2 = torch.randn(50, 16)
        rounded = quantizer(z2)
        quantizer.bypassed = True
        output = quantizer(z2)
        assert torch.equal(output.codes, rounded.codes)
        assert not torch.allclose(output.values, rounded.values)
        if isinstance(quantizer, VectorQuantizer):
            torch.testing.assert_close(output.values, quantizer.project_out(output.latents))
            output.loss.backward()
            assert quantizer.codebook.grad.abs().sum() > 0


def test_dead_codes_move_to_where_the_vectors_are() -> None:
    quantizer = VectorQuantizer(16, 64, 8)
    latents = F.normalize(torch.randn(20, 8), dim=-1)
    counts = torch.zeros(64)
    counts[:10] = 1
    before = quantizer.codebook.detach().clone()
    assert quantizer.revive(counts, latents, idle_steps=2, seed=1) == 0
    assert quantizer.revive(counts, latents, idle_steps=2, seed=1) == 54
    assert torch.equal(quantizer.codebook[:10], before[:10])
    similarity = quantizer.codebook[10:] @ latents.T
    assert similarity.max(1).values.min() > 0.97
    twin = VectorQuantizer(16, 64, 8)
    twin.codebook.data.copy_(before)
    for _ in range(2):
        twin.revive(counts, latents, idle_steps=2, seed=1)
    assert torch.equal(twin.codebook, quantizer.codebook)


def test_fsq_reaches_every_level_and_counts_them_as_digits() -> None:
    quantizer = FiniteScalarQuantizer(6, FSQ.levels)
    torch.nn.init.eye_(quantizer.project_in.weight)
    quantizer.project_in.bias.data.zero_()
    for dimension, levels in enumerate(FSQ.levels):
        z2 = torch.zeros(2001, 6)
        z2[:, dimension] = torch.linspace(-6, 6, 2001)
        digits = quantizer(z2).codes // quantizer.place_values[dimension] % levels
        assert digits.unique().tolist() == list(range(levels))


@pytest.mark.parametrize("quantizer", [VectorQuantizer(16, 512, 8), FiniteScalarQuantizer(16, FSQ.levels)])
def test_quantizer_arithmetic_stays_float32_under_autocast(quantizer: VectorQuantizer | FiniteScalarQuantizer) -> None:
    z2 = torch.randn(1000, 16)
    plain = quantizer(z2).codes
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(quantizer(z2).codes, plain)
        assert torch.equal(quantizer.encode(z2), plain)
        assert quantizer.decode(plain).dtype == torch.float32
