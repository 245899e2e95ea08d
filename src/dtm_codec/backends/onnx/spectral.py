"""Front end and heads as graphs: `nn/spectral.py`, `nn/heads.py`, `nn/source_filter.py` and `nn/pitch.py` in ONNX.

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
    MAX_MAGNITUDE,
    NOISE_FRAMES,
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


def add_pitch(graph: Graph, config: CodecConfig) -> None:
    """y: (S, D) -> hertz: (S,), the centre of mass around the highest pitch bin"""
    y = graph.input("y", "float32", ("steps", config.dim))
    logits = graph.linear(y, "head.project_pitch", exact=True)
    highest = graph.add("ArgMax", logits, axis=-1, keepdims=1)
    around = graph.plus(highest, graph.constant(np.arange(-3, 4), "int64"))
    around = graph.add("Max", around, graph.constant(0, "int64"))
    around = graph.add("Min", around, graph.constant(PITCH_BINS - 1, "int64"))
    shares = graph.add("Softmax", graph.cast(graph.add("GatherElements", logits, around, axis=1), "float64"), axis=-1)
    weighted = graph.mul(shares, graph.cast(around, "float64"))
    centre = graph.add("ReduceSum", weighted, graph.integers(-1), keepdims=0)
    octaves = graph.constant(math.log(HIGHEST_PITCH / LOWEST_PITCH) / (PITCH_BINS - 1), "float64")
    hertz = graph.mul(graph.add("Exp", graph.mul(centre, octaves)), graph.constant(LOWEST_PITCH, "float64"))
    graph.output(hertz, "hertz", "float64", ("steps",))


def add_head(graph: Graph, config: CodecConfig) -> None:
    """y: (S, D) -> frames: (S, n_fft), windowed, to be overlap-added. The source-filter head also takes positions,
    hertz and phase of the pulses, (S,) each."""
    y = graph.input("y", "float32", ("steps", config.dim))
    if config.head == "istft":
        log_magnitude, phase = graph.split(graph.linear(y, "head.project", exact=True), 2)
        spectrum = _polar(graph, log_magnitude, phase)
    else:
        spectrum = _pulses_and_noise(graph, config, y)
    graph.output(_frames(graph, *spectrum, config.n_fft), "frames", "float32", ("steps", config.n_fft))


def _polar(graph: Graph, log_magnitude: str, phase: str) -> tuple[str, str]:
    magnitude = _magnitude(graph, log_magnitude)
    return graph.mul(magnitude, graph.add("Cos", phase)), graph.mul(magnitude, graph.add("Sin", phase))


def _magnitude(graph: Graph, log_magnitude: str) -> str:
    return graph.add("Min", graph.add("Exp", log_magnitude), graph.constant(MAX_MAGNITUDE))


def _pulses_and_noise(graph: Graph, config: CodecConfig, y: str) -> tuple[str, str]:
    positions = graph.input("positions", "int64", ("steps",))
    hertz = graph.input("hertz", "float64", ("steps",))
    phase = graph.input("phase", "float64", ("steps",))
    log_pulses, log_noise, pulse_phase = graph.split(graph.linear(y, "head.project", exact=True), 3)
    filter_real, filter_imaginary = _polar(graph, log_pulses, pulse_phase)
    waves = _pulse_waves(graph, config, graph.reshape(hertz, -1, 1), graph.reshape(phase, -1, 1))
    real, imaginary = _spectrum(graph, *_folded(graph, waves, config.n_fft), config.n_fft)
    noise = _magnitude(graph, log_noise)
    row = graph.add("Mod", positions, graph.constant(NOISE_FRAMES, "int64"))
    angles = graph.constant(noise_angles(config.n_fft // 2 + 1))
    noise_real, noise_imaginary = (
        graph.mul(graph.add("Gather", graph.add(part, angles), row), noise) for part in ("Cos", "Sin")
    )
    shaped_real = graph.minus(graph.mul(real, filter_real), graph.mul(imaginary, filter_imaginary))
    shaped_imaginary = graph.plus(graph.mul(real, filter_imaginary), graph.mul(imaginary, filter_real))
    return graph.plus(shaped_real, noise_real), graph.plus(shaped_imaginary, noise_imaginary)


def _pulse_waves(graph: Graph, config: CodecConfig, hertz: str, phase: str) -> str:
    """All harmonics below the Nyquist frequency with the same magnitude, about 1. (S, 1) each -> (S, n_fft)"""
    n_fft = config.n_fft
    turns = 2 * np.pi * (np.arange(n_fft) - n_fft / 2) / config.sample_rate
    # From -pi to pi before it becomes float32: around a pulse, hundreds of harmonics multiply its rounding.
    angle = graph.wrapped(graph.plus(phase, graph.mul(hertz, graph.constant(turns[None], "float64"))))
    nyquist = graph.constant(config.sample_rate / 2, "float64")
    harmonics = graph.cast(graph.add("Floor", graph.add("Div", nyquist, hertz)), "float32")
    half = graph.add("Sin", graph.mul(angle, graph.constant(0.5)))
    at_pulse = graph.add("Less", graph.add("Abs", half), graph.constant(1e-6))
    below = graph.mul(graph.add("Where", at_pulse, graph.constant(1.0), half), graph.constant(2.0))
    # the sum of cos(h angle) over harmonics h, in closed form
    above = graph.add("Sin", graph.mul(graph.plus(harmonics, graph.constant(0.5)), angle))
    waves = graph.minus(graph.add("Div", above, below), graph.constant(0.5))
    loudness = graph.add("Sqrt", graph.mul(harmonics, graph.constant(n_fft / 4)))
    return graph.add("Div", graph.add("Where", at_pulse, harmonics, waves), loudness)


def noise_angles(bins: int) -> Array:
    """Phases of the noise, (NOISE_FRAMES, bins): the draws of torch's generator with seed 0."""
    draws = np.random.RandomState(0).randint(0, 1 << 32, NOISE_FRAMES * bins, np.uint32)
    unit = (draws & ((1 << 24) - 1)).astype(np.float32) * np.float32(2**-24)
    return (np.float32(2 * math.pi) * unit).reshape(NOISE_FRAMES, bins)


def _frames(graph: Graph, real: str, imaginary: str, n_fft: int) -> str:
    """Inverse DFT and synthesis window. (S, bins) each -> (S, n_fft)"""
    half = n_fft // 2
    bins = np.arange(half + 1)
    twice = np.where((bins == 0) | (bins == half), 1, 2)[:, None] / n_fft
    angles = 2 * np.pi / n_fft * np.outer(bins, bins)
    window = hann(n_fft)[: half + 1]
    even = graph.add("MatMul", real, graph.constant(window * twice * np.cos(angles)))
    odd = graph.add("MatMul", imaginary, graph.constant(window * twice * np.sin(angles)))
    second = _reversed(graph, graph.slice(graph.plus(even, odd), 1, half, 1))
    return graph.add("Concat", graph.minus(even, odd), second, axis=1)
