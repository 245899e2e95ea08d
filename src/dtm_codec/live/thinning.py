"""Packets of a lower rate from packets, without their audio: what a relay does where the bandwidth shrinks.

Tokens are chosen as `rate/thinning.py` chooses them in files, but a packet at a time: by the length of the path from
code to code, at a tau that is steered by the budget.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..errors import BitstreamError, RateError
from ..rate.request import RateRequest
from ..rate.thinning import TOKEN_LENGTH
from ..selectors.distances import cosine
from .packets import StreamFormat
from .rate import Budget, CausalPLE


class StreamThinner:
    """One relayed stream; `DTMCodec.stream_thinner` makes it."""

    def __init__(self, vectors: npt.NDArray[np.float32], form: StreamFormat, request: RateRequest) -> None:
        """vectors: (V, d) of the codebook"""
        if form.layout.stride is not None:
            raise RateError("a fixed-rate stream cannot be thinned: its positions are not sent; allowed: variable rate")
        if request.bitrate is None and request.token_rate is None:
            raise RateError("thinning to no rate; allowed: bitrate or token_rate")
        self.format = form
        self._vectors = vectors
        self._chooser = CausalPLE(form.layout.frame_rate).steer(Budget.of(request, form.layout, None))
        self._before = self._vectors[:0]  # what the last token that came stands for

    def push(self, data: bytes) -> bytes:
        """The packet that goes on in place of this one. Bytes that are no packet of the stream raise `BitstreamError`
        and change nothing."""
        packet = self.format.read(data)
        if packet.codes.size and packet.codes.max() >= self._vectors.shape[0]:
            raise BitstreamError(f"code {packet.codes.max()}; allowed: 0 ... {self._vectors.shape[0] - 1}")
        points = np.concatenate([self._before, self._vectors[packet.codes]])
        self._before = points[-1:]
        lengths = iter(cosine(points)[points.shape[0] - packet.codes.size :].tolist() if packet.codes.size else ())
        stays, mask = [], packet.mask.copy()
        for step, kept in enumerate(packet.mask):
            if kept:
                mask[step] = self._chooser.keep(TOKEN_LENGTH + next(lengths))
                stays.append(bool(mask[step]))
            else:
                self._chooser.pass_over()
        return self.format.write(replace(packet, mask=mask, codes=packet.codes[stays]))
