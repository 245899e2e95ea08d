"""Bits are counted as Eq. 5 says, and files are read and written without any model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec.encoded import Encoded
from dtm_codec.errors import BitstreamError
from dtm_codec.layout import Bits, Layout


def utterance(mask: list[bool], token_bits: int = 14, stride: int | None = None, hop: int = 160) -> Encoded:
    layout = Layout(sample_rate=16_000, hop_length=hop, token_bits=token_bits, stride=stride)
    return Encoded(np.zeros(sum(mask), np.int64), np.array(mask), len(mask) * hop, "test:00000000", layout)


masks = st.lists(st.booleans(), max_size=50).map(lambda rest: [True, *rest])


@given(mask=masks, token_bits=st.integers(1, 24))
def test_variable_rate_pays_for_every_token_and_every_step(mask: list[bool], token_bits: int) -> None:
    encoded = utterance(mask, token_bits)
    assert encoded.bits == Bits(content=sum(mask) * token_bits, position=len(mask))
    assert encoded.bits.total == sum(mask) * token_bits + len(mask)


def test_fixed_rate_pays_for_tokens_alone() -> None:
    assert utterance([True, False, True, False, True], 16, stride=2).bits == Bits(content=48, position=0)


@pytest.mark.parametrize(("token_bits", "stride", "content"), [(14, None, 700), (16, 2, 800)])
def test_the_papers_operating_points_come_out(token_bits: int, stride: int | None, content: int) -> None:
    """VFR at 50 Hz: 700 + 100 = 800 bps; FFR at 50 Hz with 16 bits: 800 + 0."""
    encoded = utterance([True, False] * 500, token_bits, stride)
    assert encoded.duration_s == 10
    assert encoded.bits == Bits(10 * content, 10 * (800 - content))
    assert encoded.layout.bitrate(encoded.codes.size / encoded.duration_s) == 800


@given(mask=masks, token_bits=st.integers(1, 24))
def test_bits_and_bitrate_agree(mask: list[bool], token_bits: int) -> None:
    encoded = utterance(mask, token_bits)
    rate = encoded.layout.bitrate(encoded.codes.size / encoded.duration_s)
    assert rate == pytest.approx(encoded.bits.total / encoded.duration_s)


@given(mask=masks)
def test_a_file_needs_no_model(mask: list[bool]) -> None:
    encoded = utterance(mask)
    for mode in ("raw", "compact"):
        assert Encoded.from_bytes(encoded.to_bytes(mode)) == encoded  # type: ignore[arg-type]


@given(mask=masks, missing=st.integers(0, 159))
def test_times_of_tokens_are_those_of_their_steps(mask: list[bool], missing: int) -> None:
    layout = Layout(sample_rate=16_000, hop_length=160, token_bits=14, stride=None)
    samples = len(mask) * 160 - missing
    encoded = Encoded(np.zeros(sum(mask), np.int64), np.array(mask), samples, "test:00000000", layout)
    assert encoded.times.shape == (sum(mask), 2)
    assert np.allclose(encoded.times[:, 0], encoded.positions / 100)
    assert np.array_equal(encoded.times[1:, 0], encoded.times[:-1, 1])
    assert encoded.times[-1, 1] == encoded.duration_s


def test_an_utterance_is_printed_in_one_line() -> None:
    encoded = utterance([True, False] * 500)
    assert repr(encoded) == "Encoded(500 tokens in 10.00 s, 50.0 a second, 800 bps, test:00000000)"


@pytest.mark.parametrize(
    ("durations", "message"),
    [
        ([10**13], r"a duration of 10000000000000 steps; allowed: 1 \.\.\. 16777216"),
        ([2**62] * 3, r"a duration of 4611686018427387904 steps"),
        ([1 << 24, 1], "durations of 16777217 steps in all; allowed: up to 16777216"),
        ([1] * 5000 + [0], "a duration of 0 steps"),
        ([], r"durations of shape \(0,\); allowed: \(K,\), of 1 token or more"),
        ([[1]], r"durations of shape \(1, 1\)"),
    ],
)
def test_durations_that_no_file_can_hold_are_named_in_one_line(durations: list[int], message: str) -> None:
    layout = Layout(sample_rate=16_000, hop_length=160, token_bits=14, stride=None)
    with pytest.raises(BitstreamError, match=message) as caught:
        Encoded.from_durations([0] * len(durations), durations, "test:00000000", layout)
    assert len(str(caught.value)) < 120
