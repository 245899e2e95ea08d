"""Frames of speech: cut from a signal, and laid over each other to one."""

from __future__ import annotations

import numpy as np

from ..backends.base import Floats
from ..mels import hann
from ..speech.audio import Samples


def _overlapped(frames: Floats, hop_length: int) -> Samples:
    """The sum of frames laid `hop_length` apart. (N, r hop) -> ((N + r - 1) hop,)"""
    count, overlap = len(frames), frames.shape[1] // hop_length
    total = np.zeros((count + overlap - 1, hop_length), np.float32)
    for index in range(overlap):
        total[index : index + count] += frames[:, index * hop_length : (index + 1) * hop_length]
    return total.ravel()


class OverlapAdd:
    """Overlap-adds, normalises and trims frames that come in blocks, as `Head.synthesize` does at once."""

    def __init__(self, n_fft: int, hop_length: int) -> None:
        self.weights, self.hop_length = np.square(hann(n_fft)).astype(np.float32), hop_length
        rest = n_fft - hop_length
        self._sum, self._envelope = (np.zeros(rest, np.float32) for _ in range(2))
        self._trimmed = rest // 2
        self._to_trim = self._trimmed

    def add(self, frames: Floats) -> Samples:
        """Frames that follow the last ones, (S, n_fft) -> the samples that they complete, at most (S hop,)"""
        done = len(frames) * self.hop_length
        joined = _overlapped(frames, self.hop_length)
        envelope = _overlapped(np.broadcast_to(self.weights, frames.shape), self.hop_length)
        for total, rest in ((joined, self._sum), (envelope, self._envelope)):
            total[: rest.size] += rest
            rest[:] = total[done:]
        samples = joined[:done] / np.maximum(envelope[:done], 1e-8, dtype=np.float32)
        trimmed, self._to_trim = self._to_trim, max(0, self._to_trim - done)
        return np.asarray(samples[trimmed:])

    def finish(self) -> Samples:
        """What is left at the end; then all begins anew."""
        samples: Samples = np.asarray(self._sum / np.maximum(self._envelope, 1e-8, dtype=np.float32), np.float32)
        samples = samples[self._to_trim : -self._trimmed or None]
        self._sum[:] = 0
        self._envelope[:] = 0
        self._to_trim = self._trimmed
        return samples
