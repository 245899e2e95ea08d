"""The front end as graphs: `nn/spectral.py` and the salience of `nn/pitch.py` in ONNX.

A DFT is a matrix product here. Frames are folded about their centre first, which halves the matrices; the windows are
in them.
"""

from __future__ import annotations

import math

import numpy as np

from ...config import (
    COMPRESSION,
    HIGHEST_PITCH,
    LOWEST_PITCH,
    PITCH_BINS,
    SELECTOR_MELS,
    CodecConfig,
)
from ...mels import hann, mel_filterbank
from .graph import LAST, Array, Graph


def add_front_end(graph: Graph, config: CodecConfig) -> None:
    """frames: (S, n_fft) -> x: (S, D)"""
    frames = graph.input("frames", "float32", ("steps", config.n_fft))
    even, odd = _folded(graph, frames, config.n_fft)
    real, imaginary = _spectrum(graph, even, odd, config.n_fft)
    log_power = graph.add("Log", graph.plus(_power(graph, real, imaginary), graph.constant(1e-8)))
    scale = graph.add("Exp", graph.mul(log_power, graph.constant((COMPRESSION - 1) / 2)))
    features = [graph.mul(real, scale), graph.mul(imaginary, scale)]
    if config.spectral_features != "complex":
        features.append(graph.plus(graph.mul(log_power, graph.constant(0.1)), graph.constant(0.5)))
    if config.spectral_features == "complex+logmag+pitch":
        mean = graph.add("ReduceMean", frames, axes=(-1,), keepdims=1)
        level = np.full((1, config.n_fft // 2), 2.0)
        level[0, -1] = 1  # the centre was not folded onto anything
        features.append(_salience(graph, config, graph.minus(even, graph.mul(mean, graph.constant(level))), odd))
    joined = graph.add("Concat", *features, axis=-1)
    graph.output(graph.linear(joined, "front_end.project", exact=True), "x", "float32", ("steps", config.dim))


def add_log_mel(graph: Graph, config: CodecConfig) -> None:
    """frames: (S, n_fft) -> log_mel: (S, bands), what a selector may look at instead of z1"""
    frames = graph.input("frames", "float32", ("steps", config.n_fft))
    power = _power(graph, *_spectrum(graph, *_folded(graph, frames, config.n_fft), config.n_fft))
    filters = graph.constant(mel_filterbank(config.sample_rate, config.n_fft, SELECTOR_MELS).T)
    bands = graph.plus(graph.add("MatMul", graph.add("Sqrt", power), filters), graph.constant(1e-5))
    graph.output(graph.add("Log", bands), "log_mel", "float32", ("steps", SELECTOR_MELS))


def _folded(graph: Graph, frames: str, n_fft: int) -> tuple[str, str]:
    """Sums and differences of samples equally far from the centre: (S, n_fft / 2), the last being the centre itself,
    and (S, n_fft / 2 - 1). The first sample of a frame is left out: windows are 0 there."""
    half = n_fft // 2
    first = graph.slice(frames, 1, half, 1)
    second = _reversed(graph, graph.slice(frames, half + 1, LAST, 1))
    even = graph.add("Concat", graph.plus(first, second), graph.slice(frames, half, half + 1, 1), axis=1)
    return even, graph.minus(first, second)


def _reversed(graph: Graph, x: str) -> str:
    """The second axis backwards."""
    return graph.add("Slice", x, graph.integers(-1), graph.integers(-LAST), graph.integers(1), graph.integers(-1))


def _spectrum(graph: Graph, even: str, odd: str, n_fft: int) -> tuple[str, str]:
    """Real and imaginary parts of the windowed DFT of folded frames, (S, bins) each."""
    half = n_fft // 2
    angles = 2 * np.pi / n_fft * np.outer(np.arange(1, half + 1), np.arange(half + 1))
    window = hann(n_fft)[1 : half + 1, None]
    cosines, sines = window * np.cos(angles), -(window * np.sin(angles))[:-1]
    return graph.add("MatMul", even, graph.constant(cosines)), graph.add("MatMul", odd, graph.constant(sines))


def _power(graph: Graph, real: str, imaginary: str) -> str:
    return graph.plus(graph.mul(real, real), graph.mul(imaginary, imaginary))


def _salience(graph: Graph, config: CodecConfig, even: str, odd: str) -> str:
    """How much frames repeat themselves at each pitch, from their autocorrelation. -> (S, PITCH_BINS)"""
    n_fft, half = config.n_fft, config.n_fft // 2
    longest = math.ceil(config.sample_rate / LOWEST_PITCH) + 2
    size = 2 * ((n_fft + longest + 1) // 2)  # of the DFT: lags up to the longest do not wrap around
    window = hann(n_fft)
    # The phase of a shift does not change the power: the centre of the frame is time 0.
    angles = 2 * np.pi / size * np.outer(np.arange(half - 1, -1, -1), np.arange(size // 2 + 1))
    weights = window[1 : half + 1, None]
    real = graph.add("MatMul", even, graph.constant(weights * np.cos(angles)))
    imaginary = graph.add("MatMul", odd, graph.constant((weights * np.sin(angles))[:-1]))
    ideal = np.fft.irfft(np.abs(np.fft.rfft(window, 2 * n_fft)) ** 2)[:n_fft]
    correlation = graph.add(
        "MatMul", _power(graph, real, imaginary), graph.constant(_lags(config.sample_rate, size, ideal))
    )
    energy = graph.plus(graph.slice(correlation, 0, 1, 1), graph.constant(1e-6 * ideal[0]))
    return graph.add("Div", graph.slice(correlation, 1, LAST, 1), energy)


def _lags(sample_rate: int, size: int, ideal: Array) -> Array:
    """From powers to the correlation at lag 0, and to that at the lag of every pitch over that of the window.
    -> (size / 2 + 1, 1 + PITCH_BINS)"""
    bins = np.arange(size // 2 + 1)
    twice = np.where((bins == 0) | (bins == size // 2), 1, 2) / size

    def at(lags: Array) -> Array:
        return np.asarray(twice[:, None] * np.cos(2 * np.pi / size * np.outer(bins, lags)))

    gain = ideal[0] / np.maximum(ideal, 0.02 * ideal[0])
    lags = sample_rate / (LOWEST_PITCH * (HIGHEST_PITCH / LOWEST_PITCH) ** (np.arange(PITCH_BINS) / (PITCH_BINS - 1)))
    whole = np.floor(lags).astype(np.int64)
    t = lags - whole
    a, b, c, d = (at(whole + i) * gain[whole + i] for i in (-1, 0, 1, 2))
    between = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))  # Catmull-Rom
    return np.concatenate([at(np.zeros(1)), between], axis=1)
