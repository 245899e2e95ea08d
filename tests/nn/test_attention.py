"""Windowed attention over packed sequences equals dense attention under a mask, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from dtm_codec.backends.base import Floats, Positions
from dtm_codec.coding.pieces import Rows, in_pieces
from dtm_codec.nn.attention import AttentionPlan, rotary_angles, windowed_attention
from dtm_codec.nn.timeline import Timeline
from dtm_codec.nn.transformer import TransformerStack, rotate

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=5).map(tuple)


def plan_for(
    lengths: tuple[int, ...], window: int, head_dim: int = 8, lookahead: int | None = None, stride: int = 1
) -> AttentionPlan:
    timeline = timeline_of(lengths)
    timeline = Timeline(timeline.lengths, stride * timeline.positions)
    return AttentionPlan.build(timeline.filled(window), window, head_dim, 10_000.0, lookahead)


def attend(q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan) -> Tensor:
    """What a stack does: fill up to whole blocks, and cut off again."""
    filling = (0, 0, 0, 0, 0, plan.cos.shape[0] - len(q))
    return windowed_attention(*(F.pad(x, filling) for x in (q, k, v)), plan)[: len(q)]


def timeline_of(lengths: tuple[int, ...]) -> Timeline:
    return Timeline.consecutive(lengths, torch.device("cpu"))


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], window: int, ahead: int | None = None
) -> Tensor:
    """One N x N mask over the packed axis: the definition."""
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    step = torch.arange(sum(lengths))
    seen = (sequence[:, None] == sequence) & ((step[:, None] - step).abs() <= window)
    seen &= step - step[:, None] <= (window if ahead is None else ahead)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


@given(
    lengths=LENGTHS,
    window=st.sampled_from([1, 4, 16, 64]),
    ahead=st.sampled_from([None, 0, 1, 3]),
    stride=st.sampled_from([1, 3]),
    seed=st.integers(0, 999),
)
@settings(max_examples=80, deadline=None)
def test_equals_dense_masked_attention_forward_and_backward(
    lengths: tuple[int, ...], window: int, ahead: int | None, stride: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(sum(lengths), 2, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    # steps that are `stride` apart in time: a look-ahead of so many times as much sees the same steps
    plan = plan_for(lengths, window, lookahead=None if ahead is None else stride * ahead + stride - 1, stride=stride)
    expected = dense_attention(q, k, v, lengths, window, ahead)
    torch.testing.assert_close(attend(q, k, v, plan), expected)  # the inference path

    grad = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    attended = attend(*inputs, plan)  # the training path
    torch.testing.assert_close(attended, expected)
    references = [x.clone().requires_grad_() for x in (q, k, v)]
    dense_attention(*references, lengths, window, ahead).backward(grad)
    attended.backward(grad)
    for ours, reference in zip(inputs, references, strict=True):
        torch.testing.assert_close(ours.grad, reference.grad)


def test_queries_and_keys_of_higher_precision_train_as_the_values_do() -> None:
    q, k = (torch.randn(18, 2, 8, requires_grad=True) for _ in range(2))  # what autocast on CUDA makes of their norms
    v = torch.randn(18, 2, 8, dtype=torch.bfloat16, requires_grad=True)
    attended = attend(q, k, v, plan_for((18,), 4))
    assert attended.dtype == torch.bfloat16
    attended.sum().backward()
    assert [x.grad.dtype for x in (q, k, v) if x.grad is not None] == [torch.float32, torch.float32, torch.bfloat16]


def test_memory_is_linear_in_length() -> None:
    sizes = [plan_for((length,), 64).bias.numel() for length in (6400, 12800)]
    assert sizes[1] == 2 * sizes[0]


def test_rotation_depends_on_relative_position_only() -> None:
    q, k = torch.randn(2, 1, 1, 16, dtype=torch.float64)
    products = []
    for shift in (0, 1234):
        angles = rotary_angles(torch.tensor([5 + shift, 12 + shift]), 16, 10_000.0)
        pair = rotate(torch.cat([q, k]), *angles)
        products.append((pair[0] * pair[1]).sum())
    torch.testing.assert_close(products[0], products[1], atol=1e-3, rtol=0)


@pytest.fixture(scope="module", params=[None, 0, 3])
def stack(request: pytest.FixtureRequest) -> TransformerStack:
    torch.manual_seed(0)
    return TransformerStack(
        2, 16, 2, 24, window=8, lookahead=request.param, norm_eps=1e-2, rope_base=1e4, layer_scale=1.0
    )


REACH = 2 * 8
"""Of that stack: two layers with a window of 8."""


@pytest.mark.parametrize("ahead", [0, 2])
def test_nothing_beyond_the_look_ahead_counts(ahead: int) -> None:
    torch.manual_seed(0)
    stack = TransformerStack(2, 16, 2, 24, window=8, lookahead=ahead, norm_eps=1e-2, rope_base=1e4, layer_scale=1.0)
    timeline = Timeline((40,), torch.arange(40).repeat_interleave(2)[:40] + torch.arange(40))  # 0, 1, 3, 4, 6, ...
    x = torch.randn(40, 16)
    changed = x.clone()
    changed[20:] += 1
    with torch.no_grad():
        difference = (stack(x, timeline) - stack(changed, timeline)).abs().amax(1)
    reached = timeline.positions + 2 * ahead >= timeline.positions[20]  # two layers
    assert not difference[~reached].any()
    assert difference[20:].all()
    assert difference[19] > 0 or ahead == 0


@given(lengths=LENGTHS, piece=st.sampled_from([8, 16, 40]), block=st.sampled_from([1, 7, 1000]), begin=st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_stack_in_pieces_equals_the_whole(
    stack: TransformerStack, lengths: tuple[int, ...], piece: int, block: int, begin: bool
) -> None:
    x, timeline = torch.randn(sum(lengths), 16), timeline_of(lengths)
    skipped = 16 if begin and len(x) > 48 else 0  # begin at row 48, with a reach of 16 before it
    first = 48 - skipped if skipped else 0
    blocks = (
        Rows(values.numpy(), positions.numpy())
        for values, positions in zip(x[first:].split(block), timeline.positions[first:].split(block), strict=True)
    )

    def compute(values: Floats, positions: Positions) -> Floats:
        computed: Floats = stack(torch.from_numpy(values), Timeline.of(torch.from_numpy(positions))).numpy()
        return computed

    with torch.no_grad():
        pieces = list(in_pieces(compute, REACH, blocks, piece, before=skipped))
        whole = stack(x, timeline)[first + skipped :]
    np.testing.assert_allclose(np.concatenate([rows.values for rows in pieces]), whole, atol=1e-5, rtol=1e-5)
    assert np.array_equal(np.concatenate([rows.positions for rows in pieces]), timeline.positions[first + skipped :])
    assert max(len(rows.values) for rows in pieces) <= piece + REACH


@given(lengths=LENGTHS)
@settings(max_examples=20, deadline=None)
def test_packed_sequences_do_not_see_each_other(stack: TransformerStack, lengths: tuple[int, ...]) -> None:
    values = torch.randn(sum(lengths), 16)
    with torch.no_grad():
        together = stack(values, timeline_of(lengths)).split(lengths)
        alone = [stack(x, timeline_of((len(x),))) for x in values.split(lengths)]
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_late_in_a_long_recording_angles_are_as_exact_as_at_its_start() -> None:
    positions = torch.arange(50) + 40 * 360_000  # 40 hours at 100 Hz
    cos, sin = rotary_angles(positions, 32, 10_000.0)
    angles = positions[:, None] * 10_000.0 ** -(torch.arange(0, 32, 2).double() / 32)
    torch.testing.assert_close(cos[:, 0].double(), angles.cos(), rtol=0, atol=1e-6)
    torch.testing.assert_close(sin[:, 0].double(), angles.sin(), rtol=0, atol=1e-6)


def test_a_timeline_is_cut_and_thinned_with_its_sequences() -> None:
    timeline = timeline_of((3, 1, 4))
    assert timeline.positions.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    piece = Timeline.of(timeline.positions[2:6])
    assert (piece.lengths, piece.positions.tolist()) == ((1, 1, 2), [2, 0, 0, 1])
    kept = timeline.kept(torch.tensor([1, 0, 1, 1, 1, 0, 0, 1]).bool())
    assert (kept.lengths, kept.positions.tolist()) == ((2, 1, 2), [0, 2, 0, 0, 3])
