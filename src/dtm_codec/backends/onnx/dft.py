"""The DFT of heads as products of matrices, a quarter of the size that a plain one would need.

Samples that are equally far from the centre of a frame meet the same cosines, and sines of opposite sign. The same
holds for bins with even numbers, and with the signs changed for those with odd ones, about the centre of each half. So
frames are folded twice before they are multiplied, and unfolded twice when they come back. For this the samples of a
frame stand in the order of `quarters`, and the bins of a spectrum in that of `bin_order`.
"""

from __future__ import annotations

import numpy as np

from ...mels import hann
from .graph import LAST, Array, Graph


def quarters(n_fft: int) -> Array:
    """Numbers of samples, in quarters that can be folded onto each other: (n_fft + 4,), as edges stand there twice. The
    sample after the last is among them; windows are 0 there."""
    half, n = n_fft // 2, np.arange(n_fft // 4 + 1)
    return np.concatenate([n, half - n, n_fft - n, half + n])


def bin_order(n_fft: int) -> Array:
    """Bins with even numbers before those with odd ones."""
    bins = np.arange(n_fft // 2 + 1)
    return np.concatenate([bins[::2], bins[1::2]])


def _angles(n_fft: int) -> tuple[Array, Array]:
    """Of the samples of the first quarter at even and at odd bins, (n_fft / 4 + 1, bins) each."""
    angles = 2 * np.pi / n_fft * np.outer(np.arange(n_fft // 4 + 1), np.arange(n_fft // 2 + 1))
    return angles[:, ::2], angles[:, 1::2]


def add_spectrum(graph: Graph, samples: str, n_fft: int, offset: float) -> tuple[str, str]:
    """Windowed DFT of frames, with a constant added to all samples. (S, n_fft + 4) in the order of `quarters` -> real
    and imaginary part, (S, bins) each in that of `bin_order`"""
    once = np.ones(n_fft // 4 + 1)
    once[[0, -1]] = 0.5  # what stands there twice
    window = np.append(hann(n_fft), 0)
    windowed = graph.mul(samples, graph.constant(np.tile(once, 4) * window[quarters(n_fft)]))
    first, second = graph.split(windowed, 2)
    (a, b), (c, d) = graph.split(graph.plus(first, second), 2), graph.split(graph.minus(first, second), 2)
    even, odd = _angles(n_fft)
    level = offset * np.fft.rfft(window[:-1]).real
    real = (
        graph.add("Gemm", graph.plus(a, b), graph.constant(np.cos(even)), graph.constant(level[::2])),
        graph.add("Gemm", graph.minus(a, b), graph.constant(np.cos(odd)), graph.constant(level[1::2])),
    )
    imaginary = (
        graph.add("MatMul", graph.minus(c, d), graph.constant(-np.sin(even))),
        graph.add("MatMul", graph.plus(c, d), graph.constant(-np.sin(odd))),
    )
    return graph.add("Concat", *real, axis=1), graph.add("Concat", *imaginary, axis=1)


def add_frames(graph: Graph, real: str, imaginary: str, n_fft: int) -> str:
    """Inverse DFT and synthesis window. (S, bins) each in the order of `bin_order` -> (S, n_fft)"""
    quarter = n_fft // 4
    bins = np.arange(n_fft // 2 + 1)
    twice = np.where((bins == 0) | (bins == n_fft // 2), 1, 2) / n_fft

    def at_first_quarter(spectrum: str, even: Array, odd: Array) -> tuple[str, str]:
        """Sums over even and over odd bins."""
        parts = graph.slice(spectrum, 0, quarter + 1, 1), graph.slice(spectrum, quarter + 1, LAST, 1)
        tables = (even * twice[::2]).T, (odd * twice[1::2]).T
        first, second = (graph.add("MatMul", *pair) for pair in zip(parts, map(graph.constant, tables), strict=True))
        return first, second

    even, odd = _angles(n_fft)
    even_cosines, odd_cosines = at_first_quarter(real, np.cos(even), np.cos(odd))
    even_sines, odd_sines = at_first_quarter(imaginary, np.sin(even), np.sin(odd))
    outer = graph.plus(even_cosines, odd_cosines), graph.plus(even_sines, odd_sines)
    inner = graph.minus(even_cosines, odd_cosines), graph.minus(odd_sines, even_sines)
    parts = (
        graph.minus(*outer),
        _backwards(graph, graph.minus(*inner), quarter),
        graph.plus(*inner),
        _backwards(graph, graph.plus(*outer), quarter),
    )
    return graph.mul(graph.add("Concat", *parts, axis=1), graph.constant(hann(n_fft)))


def _backwards(graph: Graph, x: str, stop: int) -> str:
    """Columns stop - 1 ... 1"""
    start, end, axis, step = (graph.integers(value) for value in (stop - 1, 0, 1, -1))
    return graph.add("Slice", x, start, end, axis, step)
