"""Down- and upsamplers against their definitions, step by step."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec.nn.resampling import Average, ConvDown, ConvUp, MaskFill, Pack, Repeat

MASKS = st.lists(st.booleans(), min_size=0, max_size=30).map(lambda rest: torch.tensor([True, *rest]))


@given(MASKS)
def test_pack_keeps_vectors_exactly_and_mask_fill_puts_them_back(mask: torch.Tensor) -> None:
    z1 = torch.randn(len(mask), 3)
    fill = MaskFill(3)
    kept = Pack()(z1, mask)
    assert torch.equal(kept, torch.stack([z for z, m in zip(z1, mask, strict=True) if m]))
    filled = fill(kept, mask)
    for t, kept_here in enumerate(mask):
        assert torch.equal(filled[t], z1[t] if kept_here else fill.embedding)


@given(MASKS)
def test_average_and_repeat_work_on_segments(mask: torch.Tensor) -> None:
    z1 = torch.randn(len(mask), 3, dtype=torch.float64)
    segments: list[list[int]] = []
    for t, kept_here in enumerate(mask):
        if kept_here:
            segments.append([])
        segments[-1].append(t)
    means = Average()(z1, mask)
    torch.testing.assert_close(means, torch.stack([z1[s].mean(0) for s in segments]))
    repeated = Repeat()(means, mask)
    for segment, mean in zip(segments, means, strict=True):
        for t in segment:
            assert torch.equal(repeated[t], mean)


def test_conv_resampling_is_a_strided_convolution_per_sequence() -> None:
    down, up = ConvDown(3, 2), ConvUp(3, 2)
    first, second = torch.randn(5, 3), torch.randn(4, 3)
    mask = torch.tensor([True, False, True, False, True, True, False, True, False])
    kept = down(torch.cat([first, second]), mask)
    weight = down.project.weight.unflatten(1, (2, 3)).transpose(1, 2)  # (out, in, kernel)
    for got, sequence in ((kept[:3], first), (kept[3:], second)):
        padded = torch.nn.functional.pad(sequence.T, (0, len(sequence) % 2))
        expected = torch.nn.functional.conv1d(padded, weight, down.project.bias, stride=2).T
        torch.testing.assert_close(got, expected)
    raised = up(kept, mask)
    assert raised.shape == (9, 3)
    torch.testing.assert_close(raised[4], up.project(kept[2])[:3])
    torch.testing.assert_close(raised[6], up.project(kept[3])[3:])


def test_gradients_reach_the_mask_embedding_and_kept_vectors_only() -> None:
    mask = torch.tensor([True, False, False, True])
    fill, z1 = MaskFill(2), torch.randn(4, 2, requires_grad=True)
    fill(Pack()(z1, mask), mask).sum().backward()
    assert torch.equal(fill.embedding.grad, torch.full((2,), 2.0))
    assert torch.equal(z1.grad, mask[:, None].float().expand(-1, 2))
