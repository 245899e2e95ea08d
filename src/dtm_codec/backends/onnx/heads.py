"""Heads as graphs: `nn/heads.py`, `nn/source_filter.py` and the predicted pitch of `nn/pitch.py` in ONNX."""

from __future__ import annotations

import math

import numpy as np

from ...config import HIGHEST_PITCH, LOWEST_PITCH, MAX_MAGNITUDE, NOISE_FRAMES, PITCH_BINS, CodecConfig
from .dft import add_frames, add_spectrum, bin_order, folded, quarters
from .graph import Array, Graph


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
    predicted = graph.linear_parts(y, "head.project", 2 if config.head == "istft" else 3, bin_order(config.n_fft))
    spectrum = _polar(graph, *predicted) if config.head == "istft" else _pulses_and_noise(graph, config, *predicted)
    graph.output(add_frames(graph, *spectrum, config.n_fft), "frames", "float32", ("steps", config.n_fft))


def _polar(graph: Graph, log_magnitude: str, phase: str, loudness: str | None = None) -> tuple[str, str]:
    magnitude = _magnitude(graph, log_magnitude)
    if loudness is not None:
        magnitude = graph.mul(magnitude, loudness)
    return graph.mul(magnitude, graph.add("Cos", phase)), graph.mul(magnitude, graph.add("Sin", phase))


def _magnitude(graph: Graph, log_magnitude: str) -> str:
    return graph.add("Min", graph.add("Exp", log_magnitude), graph.constant(MAX_MAGNITUDE))


def _pulses_and_noise(
    graph: Graph, config: CodecConfig, log_pulses: str, log_noise: str, pulse_phase: str
) -> tuple[str, str]:
    positions = graph.input("positions", "int64", ("steps",))
    hertz, phase = (graph.reshape(graph.input(name, "float64", ("steps",)), -1, 1) for name in ("hertz", "phase"))
    nyquist = graph.constant(config.sample_rate / 2, "float64")
    harmonics = graph.cast(graph.add("Floor", graph.add("Div", nyquist, hertz)), "float32")
    waves = _pulse_waves(graph, harmonics, _turns(graph, config, hertz, phase))
    real, imaginary = add_spectrum(graph, *folded(graph, waves, config.n_fft), config.n_fft, offset=-1.0)
    loudness = graph.add("Reciprocal", graph.add("Sqrt", graph.mul(harmonics, graph.constant(config.n_fft))))
    filter_real, filter_imaginary = _polar(graph, log_pulses, pulse_phase, loudness)
    noise = _magnitude(graph, log_noise)
    row = graph.add("Mod", positions, graph.constant(NOISE_FRAMES, "int64"))
    angles = graph.constant(noise_angles(config.n_fft // 2 + 1)[:, bin_order(config.n_fft)])
    noise_real, noise_imaginary = (
        graph.mul(graph.add("Gather", graph.add(part, angles), row), noise) for part in ("Cos", "Sin")
    )
    shaped_real = graph.minus(graph.mul(real, filter_real), graph.mul(imaginary, filter_imaginary))
    shaped_imaginary = graph.plus(graph.mul(real, filter_imaginary), graph.mul(imaginary, filter_real))
    return graph.plus(shaped_real, noise_real), graph.plus(shaped_imaginary, noise_imaginary)


def _turns(graph: Graph, config: CodecConfig, hertz: str, phase: str) -> str:
    """How often a pulse train has turned at each sample of a frame, without whole turns. Around a pulse, hundreds of
    harmonics multiply its rounding, so it needs more than the 24 bits of float32. The first bits of phase and pitch are
    multiplied and added without any rounding; the others follow when whole turns are gone.
    (S, 1) float64 each -> (S, n_fft + 4) in the order of `quarters`"""
    times = quarters(config.n_fft) - config.n_fft // 2
    most = HIGHEST_PITCH * config.n_fft / 2 / config.sample_rate + 1
    parts_of_a_turn = 2.0 ** (24 - math.ceil(math.log2(most)))
    unit = np.array([1 / config.sample_rate, 1 / (2 * np.pi)])
    rate_and_start = graph.mul(graph.add("Concat", hertz, phase, axis=1), graph.constant(unit, "float64"))
    whole = graph.add("Floor", graph.mul(rate_and_start, graph.constant(parts_of_a_turn, "float64")))
    coarse = graph.mul(whole, graph.constant(1 / parts_of_a_turn, "float64"))
    at_times = graph.constant(np.stack([times, np.ones_like(times)]))
    turns, rest = (
        graph.add("MatMul", graph.cast(part, "float32"), at_times)
        for part in (coarse, graph.minus(rate_and_start, coarse))
    )
    return graph.plus(graph.minus(turns, graph.add("Round", turns)), rest)


def _pulse_waves(graph: Graph, harmonics: str, turns: str) -> str:
    """Twice the sum of cos(2 pi h turns) over harmonics h, plus 1, in closed form. harmonics: (S, 1)"""
    # It is even, and flat at 0, where it would be 0 / 0.
    angle = graph.mul(graph.add("Clip", graph.add("Abs", turns), graph.constant(3e-7)), graph.constant(np.pi))
    odd = graph.plus(graph.mul(harmonics, graph.constant(2.0)), graph.constant(1.0))
    return graph.add("Div", graph.add("Sin", graph.mul(angle, odd)), graph.add("Sin", angle))


def noise_angles(bins: int) -> Array:
    """Phases of the noise, (NOISE_FRAMES, bins): the draws of torch's generator with seed 0."""
    draws = np.random.RandomState(0).randint(0, 1 << 32, NOISE_FRAMES * bins, np.uint32)
    unit = (draws & ((1 << 24) - 1)).astype(np.float32) * np.float32(2**-24)
    return (np.float32(2 * math.pi) * unit).reshape(NOISE_FRAMES, bins)
