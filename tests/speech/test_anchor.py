"""The anchor is the one that BS.1534 asks for, in listening tests and in tables alike."""

from __future__ import annotations

import numpy as np
import pytest

from dtm_codec.errors import ConfigError
from dtm_codec.speech.anchor import low_pass

pytest.importorskip("scipy")


@pytest.mark.parametrize("rate", [16_000, 24_000, 48_000])
def test_the_anchor_is_what_bs1534_asks_for(rate: int) -> None:
    impulse = np.zeros(rate, np.float32)
    impulse[rate // 2] = 1
    response = low_pass(impulse, rate, 3500)
    assert np.argmax(np.abs(response)) == rate // 2, "no delay"
    gain = 20 * np.log10(np.abs(np.fft.rfft(response)) + 1e-9)
    hertz = np.fft.rfftfreq(rate, 1 / rate)
    assert np.abs(gain[hertz <= 3500]).max() < 0.1
    assert gain[hertz >= 4000].max() < -25
    assert gain[hertz >= 4500].max() < -50


def test_an_anchor_above_the_band_is_refused() -> None:
    with pytest.raises(ConfigError, match="3500 Hz at 8000 Hz; allowed: below 3500"):
        low_pass(np.ones(8000, np.float32), 8000, 3500)
