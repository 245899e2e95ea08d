"""The front end as graphs: `nn/spectral.py` and the salience of `nn/pitch.py` in ONNX."""

from __future__ import annotations

import numpy as np

from ...config import COMPRESSION, HIGHEST_PITCH, LOWEST_PITCH, PITCH_BINS, SELECTOR_MELS, CodecConfig
from ...mels import hann, mel_filterbank
from .dft import (
    add_power_between_bins,
    add_spectrum,
    bin_order,
    folded,
    in_quarters,
    power,
    window_spectrum,
)
from .graph import LAST, Array, Graph


def add_front_end(graph: Graph, config: CodecConfig) -> None:
    """frames: (S, n_fft) -> x: (S, D)"""
    n_fft = config.n_fft
    frames = graph.input("frames", "float32", ("steps", n_fft))
    halves = folded(graph, in_quarters(graph, frames, n_fft), n_fft)
    real, imaginary = add_spectrum(graph, *halves, n_fft)
    log_power = graph.add("Log", graph.plus(power(graph, real, imaginary), graph.constant(1e-8)))
    scale = graph.add("Exp", graph.mul(log_power, graph.constant((COMPRESSION - 1) / 2)))
    features = [graph.mul(real, scale), graph.mul(imaginary, scale)]
    if config.spectral_features != "complex":
        features.append(graph.plus(graph.mul(log_power, graph.constant(0.1)), graph.constant(0.5)))
    bins, order = n_fft // 2 + 1, bin_order(n_fft)
    columns = [part * bins + order for part in range(len(features))]
    if config.spectral_features == "complex+logmag+pitch":
        mean = graph.add("ReduceMean", frames, axes=(-1,), keepdims=1)
        real = graph.minus(real, graph.mul(mean, graph.constant(window_spectrum(n_fft)[None, order])))
        between = add_power_between_bins(graph, *halves, mean, n_fft)
        columns.append(len(features) * bins + np.arange(PITCH_BINS))
        features.append(_salience(graph, config, power(graph, real, imaginary), between))
    joined = graph.add("Concat", *features, axis=-1)
    projected = graph.linear(joined, "front_end.project", columns=np.concatenate(columns), exact=True)
    graph.output(projected, "x", "float32", ("steps", config.dim))


def add_log_mel(graph: Graph, config: CodecConfig) -> None:
    """frames: (S, n_fft) -> log_mel: (S, bands), what a selector may look at instead of z1"""
    n_fft = config.n_fft
    frames = graph.input("frames", "float32", ("steps", n_fft))
    spectrum = add_spectrum(graph, *folded(graph, in_quarters(graph, frames, n_fft), n_fft), n_fft)
    filters = graph.constant(mel_filterbank(config.sample_rate, n_fft, SELECTOR_MELS).T[bin_order(n_fft)])
    magnitude = graph.add("Sqrt", power(graph, *spectrum))
    bands = graph.plus(graph.add("MatMul", magnitude, filters), graph.constant(1e-5))
    graph.output(graph.add("Log", bands), "log_mel", "float32", ("steps", SELECTOR_MELS))


def _salience(graph: Graph, config: CodecConfig, at_bins: str, between: str) -> str:
    """How much frames repeat themselves at each pitch, from their autocorrelation. It comes from powers of a DFT of
    twice the length, so that lags do not wrap around: every other one is that of a bin. -> (S, PITCH_BINS)"""
    n_fft = config.n_fft
    ideal = np.fft.irfft(np.abs(np.fft.rfft(hann(n_fft), 2 * n_fft)) ** 2)[:n_fft]
    lags = _lags(config.sample_rate, 2 * n_fft, ideal)
    correlation = graph.add("MatMul", at_bins, graph.constant(lags[::2][bin_order(n_fft)]))
    correlation = graph.add("Gemm", between, graph.constant(lags[1::2]), correlation)
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
