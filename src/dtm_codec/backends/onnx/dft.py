"""The DFT as products of matrices, a quarter of the size that a plain one would need.

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


def in_quarters(graph: Graph, frames: str, n_fft: int) -> str:
    """(S, n_fft) -> (S, n_fft + 4) in the order of `quarters`"""
    half, quarter = n_fft // 2, n_fft // 4
    parts = (
        graph.slice(frames, 0, quarter + 1, 1),
        _backwards(graph, frames, half, quarter),
        graph.slice(frames, 0, 1, 1),  # for the sample after the last: anything, as its window is 0
        _backwards(graph, frames, n_fft - 1, half + quarter),
        graph.slice(frames, half, half + quarter + 1, 1),
    )
    return graph.add("Concat", *parts, axis=1)


def folded(graph: Graph, samples: str, n_fft: int) -> tuple[str, str]:
    """Sums and differences of windowed samples equally far from the centre of a frame, of each pair that which comes
    first minus the other. (S, n_fft + 4) in the order of `quarters` -> (S, n_fft / 2 + 2) each, in that of its half"""
    once = np.ones(n_fft // 4 + 1)
    once[[0, -1]] = 0.5  # what stands there twice
    window = np.append(hann(n_fft), 0)
    windowed = graph.mul(samples, graph.constant(np.tile(once, 4) * window[quarters(n_fft)]))
    first, second = graph.split(windowed, 2)
    return graph.plus(first, second), graph.minus(first, second)


def add_spectrum(graph: Graph, sums: str, differences: str, n_fft: int, offset: float = 0.0) -> tuple[str, str]:
    """DFT of what is `folded`, as if a constant had been added to all samples before. -> real and imaginary part,
    (S, bins) each in the order of `bin_order`"""
    (a, b), (c, d) = graph.split(sums, 2), graph.split(differences, 2)
    even, odd = _angles(n_fft)
    level = offset * window_spectrum(n_fft)
    real = (
        graph.add("Gemm", graph.plus(a, b), graph.constant(np.cos(even)), graph.constant(level[::2])),
        graph.add("Gemm", graph.minus(a, b), graph.constant(np.cos(odd)), graph.constant(level[1::2])),
    )
    imaginary = (
        graph.add("MatMul", graph.minus(c, d), graph.constant(-np.sin(even))),
        graph.add("MatMul", graph.plus(c, d), graph.constant(-np.sin(odd))),
    )
    return graph.add("Concat", *real, axis=1), graph.add("Concat", *imaginary, axis=1)


def add_power_between_bins(graph: Graph, sums: str, differences: str, mean: str, n_fft: int) -> str:
    """Power of what is `folded` half a bin above each bin but the last, less the mean of the samples.
    mean: (S, 1) -> (S, n_fft / 2)"""
    times = n_fft / 2 - quarters(n_fft)[: n_fft // 2 + 2]  # from the centre: a shift does not change the power
    between = np.arange(n_fft // 2) + 0.5
    angles = 2 * np.pi / n_fft * np.outer(times, between)
    level = hann(n_fft) @ np.cos(2 * np.pi / n_fft * np.outer(np.arange(n_fft) - n_fft / 2, between))
    real = graph.add("MatMul", sums, graph.constant(np.cos(angles)))
    real = graph.minus(real, graph.mul(mean, graph.constant(level[None])))
    return power(graph, real, graph.add("MatMul", differences, graph.constant(np.sin(angles))))


def power(graph: Graph, real: str, imaginary: str) -> str:
    return graph.plus(graph.mul(real, real), graph.mul(imaginary, imaginary))


def window_spectrum(n_fft: int) -> Array:
    """DFT of the window itself, which is real. -> (bins,)"""
    return np.fft.rfft(hann(n_fft)).real


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
        _backwards(graph, graph.minus(*inner), quarter - 1, 1),
        graph.plus(*inner),
        _backwards(graph, graph.plus(*outer), quarter - 1, 1),
    )
    return graph.mul(graph.add("Concat", *parts, axis=1), graph.constant(hann(n_fft)))


def _backwards(graph: Graph, x: str, first: int, last: int) -> str:
    """Columns first, first - 1, ..., last"""
    start, end, axis, step = (graph.integers(value) for value in (first, last - 1, 1, -1))
    return graph.add("Slice", x, start, end, axis, step)
