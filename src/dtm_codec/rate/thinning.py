"""Fewer tokens without the audio: Path Length Equalization over what the codes stand for.

The tokens of an utterance are points of the codebook. Those are kept at which the path from token to token has grown by
tau, as Algorithm 1 of the paper keeps frames. Every token adds a length of its own to the path: the encoder has already
placed tokens where speech changes, so each of them says something, also where two codes lie close together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import RateError
from ..layout import Layout
from ..selectors import PLE
from .calibration import calibrate
from .request import RateRequest

TOKEN_LENGTH = 1.0
"""What a token adds to the path beside its distance, which is from 0 to 2. Chosen on dev speech at 500 bps. Without it,
thinned speech is clearly less intelligible than with every so many-th token; with it, the two are on a par."""


def thinned(
    codes: npt.NDArray[np.int64],
    vectors: npt.NDArray[np.float32],
    num_samples: int,
    layout: Layout,
    request: RateRequest,
) -> npt.NDArray[np.bool_]:
    """Which tokens stay at the rate that is asked for. codes: (K,), vectors: (V, d) of the codebook -> (K,) bool"""
    if layout.stride is not None:
        raise RateError("a fixed-rate file cannot be thinned: its positions are not sent; allowed: a variable rate")
    if request.bitrate is None and request.token_rate is None:
        raise RateError("thinning to no rate; allowed: bitrate or token_rate")
    target = request.tokens(num_samples, layout, None, most=codes.size)
    selector = PLE()
    statistics = selector.statistics(vectors[codes]).astype(np.float64) + TOKEN_LENGTH
    return selector.keep(statistics, calibrate(selector, [statistics], target).tau)
