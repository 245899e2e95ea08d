"""The ONNX graphs are the network: valid files, and the same numbers as torch, part by part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from dtm_codec import DTMCodec
from dtm_codec.backends import load_backend
from dtm_codec.backends.base import Backend, Pulses
from dtm_codec.backends.onnx.backend import OnnxBackend
from dtm_codec.backends.onnx.graph import MAX_BYTES, Graph
from dtm_codec.backends.onnx.graphs import build_graph, graph_names
from dtm_codec.backends.onnx.heads import noise_angles
from dtm_codec.coding.chain import following
from dtm_codec.config import NOISE_FRAMES, STACKS, CodecConfig, SelectorConfig, preset
from dtm_codec.errors import ModelError
from dtm_codec.models.hub import LoadedModel
from dtm_codec.nn import pitch
from dtm_codec.nn.source_filter import SourceFilterHead
from dtm_codec.speech.audio import read_audio, sample_path

TINY: dict[str, Any] = {
    "dim": 32,
    "heads": 2,
    "mlp_hidden": 48,
    "enc1_layers": 2,
    "enc2_layers": 1,
    "dec1_layers": 1,
    "dec2_layers": 2,
    "window": 16,
}
CONFIGS = {
    "source-filter": preset("s-vfr-50"),
    "istft": preset("vfr-50"),
    "look-ahead": replace(preset("s-vfr-50"), enc1_lookahead=0, enc2_lookahead=4, dec1_lookahead=16, dec2_lookahead=2),
    "rank, repeat, log-mel": replace(
        preset("packrep"), stage2_positions="rank", selector=SelectorConfig(features="logmel"), hop_length=100
    ),
}
configs = pytest.mark.parametrize("config", [replace(c, **TINY) for c in CONFIGS.values()], ids=CONFIGS)


def both(config: CodecConfig) -> tuple[Backend, Backend]:
    torch.manual_seed(0)
    in_torch = DTMCodec(config).backend
    tensors = {name: _lively(name, values) for name, values in in_torch.weights().items()}
    loaded = LoadedModel(config, tensors, None, "test")
    return load_backend(loaded, "cpu", "torch"), load_backend(loaded, "cpu", "onnx")


def _lively(name: str, values: np.ndarray) -> np.ndarray:
    """Norms and scales are all ones at first; with other numbers, one that is left out or swapped shows."""
    generator = np.random.default_rng(len(name))
    return values + 0.1 * generator.standard_normal(values.shape).astype(values.dtype)


def close(one: np.ndarray, other: np.ndarray, tolerance: float = 2e-4) -> None:
    assert one.dtype == other.dtype
    np.testing.assert_allclose(one, other, atol=tolerance * max(1.0, float(np.abs(one).max())), rtol=0)


@configs
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_graphs_are_valid_and_hold_what_they_need(config: CodecConfig, precision: Any) -> None:
    weights = DTMCodec(config).backend.weights()
    for name in graph_names(config):
        graph = build_graph(name, config, weights, precision)
        model = onnx.load_from_string(graph.to_bytes())
        onnx.checker.check_model(model, full_check=True)
        assert [i.name for i in model.graph.input] == [port.name for port in graph.inputs]
        assert [o.name for o in model.graph.output] == [port.name for port in graph.outputs]
        assert all(tensor.data_location == onnx.TensorProto.DEFAULT for tensor in model.graph.initializer)
        operators = [node.op_type for node in model.graph.node]
        assert ("MatMulIntegerToFloat" in operators) == (precision == "int8" and name in (*STACKS, "head"))
        in_bytes = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8 and t.dims]
        assert bool(in_bytes) == ("MatMulIntegerToFloat" in operators)
        for tensor in in_bytes:  # two products with uint8 fit into 16 bits, where a processor adds them there
            assert 60 <= np.abs(onnx.numpy_helper.to_array(tensor).astype(int)).max() <= (1 << 15) // (2 * 255)


@configs
def test_every_part_gives_what_torch_gives(config: CodecConfig) -> None:
    in_torch, in_onnx = both(config)
    generator = np.random.default_rng(1)
    speech, _ = read_audio(sample_path(), 16_000)
    hop = config.hop_length
    frames = np.lib.stride_tricks.sliding_window_view(speech, config.n_fft)[: 150 * hop : hop]
    for part in ("front_end", "log_mel"):
        close(getattr(in_torch, part)(frames), getattr(in_onnx, part)(frames))
    rows = generator.standard_normal((101, config.dim)).astype(np.float32)
    positions = np.concatenate([np.arange(7, 60), np.arange(0, 144, 3)])  # one that began before, and one with gaps
    for stack in STACKS:
        close(in_torch.stack(stack, rows, positions), in_onnx.stack(stack, rows, positions))
    assert np.array_equal(in_torch.quantize(rows), in_onnx.quantize(rows))
    codes = in_torch.quantize(rows)
    close(in_torch.dequantize(codes), in_onnx.dequantize(codes))
    close(in_torch.vectors(), in_onnx.vectors(), 1e-6)
    mask = generator.random(300) < 0.3
    mask[0] = True
    kept = generator.standard_normal((int(mask.sum()), config.dim)).astype(np.float32)
    close(in_torch.upsample(kept, mask), in_onnx.upsample(kept, mask))
    close(in_torch.downsample(rows, mask[:101]), in_onnx.downsample(rows, mask[:101]))
    hertz, other_hertz = in_torch.pitch(rows), in_onnx.pitch(rows)
    assert (hertz is None) == (other_hertz is None) == (config.head == "istft")
    pulses = None
    if hertz is not None and other_hertz is not None:
        close(hertz, other_hertz)
        pulses = following(hertz, positions, 0.01)
    close(in_torch.head(rows, positions, pulses), in_onnx.head(rows, positions, pulses))


@configs
def test_stacks_in_8_bits_are_near_even_where_heads_point_along_one_axis(config: CodecConfig) -> None:
    in_torch, _ = both(config)
    loaded = LoadedModel(config, in_torch.weights(), None, "test")
    exact, rounded = (load_backend(loaded, "cpu", name) for name in ("onnx", "onnx-int8"))
    rows = np.random.default_rng(2).standard_normal((101, config.dim)).astype(np.float32)
    positions = np.concatenate([np.arange(7, 60), np.arange(0, 144, 3)])
    for x in (rows, rows * (rows == rows.max(axis=1, keepdims=True))):  # as long as a normed row can be in one number
        for stack in STACKS:
            one, other = (backend.stack(stack, x, positions) for backend in (exact, rounded))
            assert np.abs(one - other).mean() < 0.03 * np.abs(one).mean()


def test_pulses_that_meet_a_sample_exactly_and_pitches_at_the_edges() -> None:
    in_torch, in_onnx = both(replace(preset("s-vfr-50"), **TINY))
    rows = np.zeros((4, 32), np.float32)
    pulses = Pulses(np.array([55.0, 100.0, 499.9, 500.0]), np.array([0.0, 0.0, 3.2, np.pi]))
    positions = np.arange(NOISE_FRAMES - 2, NOISE_FRAMES + 2)  # where the noise repeats itself
    close(in_torch.head(rows, positions, pulses), in_onnx.head(rows, positions, pulses))


def test_pulses_are_added_up_as_in_torch_from_piece_to_piece() -> None:
    generator = np.random.default_rng(0)
    hertz = generator.uniform(55, 500, 300)
    positions = np.concatenate([np.arange(5, 90), np.arange(210), np.arange(5)])
    whole = pitch.Pulses.following(torch.from_numpy(hertz), torch.from_numpy(positions), 0.01)
    first = following(hertz[:130], positions[:130], 0.01)
    second = following(hertz[130:], positions[130:], 0.01, first)
    phase = np.concatenate([first.phase, second.phase])
    np.testing.assert_allclose(np.exp(1j * phase), np.exp(1j * whole.phase.numpy()), atol=1e-9)


def test_noise_is_that_of_torchs_generator() -> None:
    config = preset("s-vfr-50")
    bins = config.n_fft // 2 + 1
    head = SourceFilterHead(config)
    angles = torch.from_numpy(noise_angles(bins))
    assert torch.equal(torch.polar(torch.ones_like(angles), angles), head.noise)


def test_half_precision_weights_give_the_same_graphs_in_half_the_space() -> None:
    config = replace(preset("s-vfr-50"), **TINY)
    weights = {name: values.astype(np.float16) for name, values in DTMCodec(config).backend.weights().items()}
    small, large = (build_graph("enc1", config, weights, precision).to_bytes() for precision in ("fp16", "fp32"))
    assert len(small) < 0.7 * len(large)
    import onnxruntime

    rows, positions = np.random.default_rng(0).random((40, 32), np.float32), np.arange(40)
    outputs = [
        onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(
            None, {"x": rows, "positions": positions}
        )[0]
        for data in (small, large)
    ]
    np.testing.assert_allclose(*outputs, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("s-conv", "downsampler = 'conv' in ONNX; allowed: 'pack'"),
        ("s-avgmask", "downsampler = 'average' in ONNX; allowed: 'pack'"),
        ("s-ffr-fsq", "quantizer.kind = 'fsq' in ONNX; allowed: 'vq'"),
    ],
)
def test_parts_that_exist_in_torch_only_are_named(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        OnnxBackend(preset(name), {})


def test_a_graph_beyond_what_a_file_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtm_codec.backends.onnx.graph.MAX_BYTES", 100)
    graph = Graph("enc1", {}, "fp32")
    graph.constant(np.zeros(100))
    with pytest.raises(ModelError, match=r"graph 'enc1' of \d+ bytes; allowed: up to 100"):
        graph.to_bytes()
    assert MAX_BYTES < 1 << 31
