"""Samples as 16-bit numbers."""

from __future__ import annotations

import numpy as np

from dtm_codec.speech.pcm import from_pcm, to_pcm


def test_pcm_round_trip_is_within_half_a_step() -> None:
    audio = np.linspace(-1, 1, 1001, dtype=np.float32)
    assert np.abs(from_pcm(to_pcm(audio).tobytes()) - audio)[:-1].max() <= 0.501 / 32768


def test_what_passes_full_scale_is_clipped() -> None:
    assert to_pcm(np.array([-2, -1, 0, 1, 2], np.float32)).tolist() == [-32768, -32768, 0, 32767, 32767]
