"""Bits are counted as Eq. 5 says, for one utterance and for a set."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec.encoded import Encoded, Layout
from dtm_codec.errors import RateError
from dtm_codec.rate.accounting import Bits, count, duration_code_bits, rates


def utterance(mask: list[bool], token_bits: int = 14, stride: int | None = None, hop: int = 160) -> Encoded:
    layout = Layout(sample_rate=16_000, hop_length=hop, token_bits=token_bits, stride=stride)
    return Encoded(np.zeros(sum(mask), np.int64), np.array(mask), len(mask) * hop, "test:0000", layout)


masks = st.lists(st.booleans(), max_size=50).map(lambda rest: [True, *rest])


@given(mask=masks, token_bits=st.integers(1, 24))
def test_variable_rate_pays_for_every_token_and_every_step(mask: list[bool], token_bits: int) -> None:
    encoded = utterance(mask, token_bits)
    assert count(encoded) == Bits(content=sum(mask) * token_bits, position=len(mask))
    assert encoded.bits.total == sum(mask) * token_bits + len(mask)


def test_fixed_rate_pays_for_tokens_alone() -> None:
    assert count(utterance([True, False, True, False, True], 16, stride=2)) == Bits(content=48, position=0)


def test_the_papers_operating_points_come_out() -> None:
    """VFR at 50 Hz: 700 + 100 = 800 bps; FFR at 50 Hz with 16 bits: 800 + 0."""
    vfr = rates([utterance([True, False] * 500)])
    assert (vfr.content_bps, vfr.position_bps, vfr.total_bps) == (700, 100, 800)
    assert (vfr.token_rate, vfr.keep_ratio) == (50, 0.5)
    ffr = rates([utterance([True, False] * 500, 16, stride=2)])
    assert (ffr.content_bps, ffr.position_bps, ffr.total_bps) == (800, 0, 800)


@given(st.lists(masks, min_size=1, max_size=5))
def test_a_set_is_counted_as_one_long_utterance(several: list[list[bool]]) -> None:
    together = rates([utterance(mask) for mask in several])
    joined = rates([utterance([bit for mask in several for bit in mask])])
    assert together.total_bps == pytest.approx(joined.total_bps)
    assert together.keep_ratio == pytest.approx(joined.keep_ratio)


def test_the_rate_of_a_set_is_no_mean_of_rates() -> None:
    dense, sparse = utterance([True] * 10), utterance([True, *[False] * 89])
    assert rates([dense, sparse]).token_rate == pytest.approx(11)


def test_the_rate_of_nothing_is_refused() -> None:
    with pytest.raises(RateError, match="0 utterances"):
        rates([])


def test_duration_codes_of_the_other_systems() -> None:
    assert duration_code_bits(100, 4, "codecslime") == 200
    assert duration_code_bits(100, 5, "codecslime") == 300  # whole bits
    assert duration_code_bits(100, 1, "codecslime") == 0
    assert duration_code_bits(100, 4, "varstok") == 200
    assert duration_code_bits(100, 5, "varstok") == pytest.approx(232.19, abs=0.01)
    with pytest.raises(RateError, match="s_max = 0"):
        duration_code_bits(100, 0, "varstok")


def test_counting_needs_no_torch() -> None:
    code = "import sys, dtm_codec.rate.accounting; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
