"""The codec on onnxruntime: the laws of docs/architecture.md, the same files as with torch, and exports."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
import torch

from dtm_codec import DTMCodec
from dtm_codec.backends import quickest
from dtm_codec.backends.onnx.backend import OnnxBackend
from dtm_codec.backends.onnx.export import GRAPHS_FILE, export_graphs
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.cli import options
from dtm_codec.coding import chain
from dtm_codec.config import SelectorConfig, preset
from dtm_codec.errors import ModelError
from dtm_codec.models import hub
from dtm_codec.selectors import build
from dtm_codec.speech.audio import read_audio, sample_path, write_audio


@pytest.fixture(scope="module")
def codec() -> DTMCodec:
    return DTMCodec.from_pretrained(backend="onnx")


@pytest.fixture(scope="module", params=["onnx", "onnx-int8"])
def either(request: pytest.FixtureRequest) -> DTMCodec:
    return DTMCodec.from_pretrained(backend=request.param)


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    return read_audio(sample_path(), 16_000)[0]


@pytest.mark.parametrize("bitrate", [500, 800, None])
def test_masks_codes_and_audio_are_those_of_torch(codec: DTMCodec, speech: np.ndarray, bitrate: float | None) -> None:
    in_torch = DTMCodec.from_pretrained(backend="torch")
    assert (codec.model_id, codec.num_parameters) == (in_torch.model_id, in_torch.num_parameters)
    one, other = (c.encode(speech, 16_000, bitrate=bitrate) for c in (in_torch, codec))
    assert np.sum(one.mask != other.mask) <= 2
    assert one.codes.size != other.codes.size or np.sum(one.codes != other.codes) <= 1  # float ties
    assert np.abs(in_torch.decode(one) - codec.decode(one)).max() < 1e-3
    assert codec.from_bytes(in_torch.to_bytes(one)) == one


def test_a_batch_gives_what_each_gives_alone(either: DTMCodec, speech: np.ndarray) -> None:
    parts = [speech[:20_000], speech[:1], speech[30_000:47_123], speech[:160]]
    together = either.encode(parts, 16_000)
    for alone, encoded in zip((either.encode(part, 16_000) for part in parts), together, strict=True):
        assert np.sum(alone.mask != encoded.mask) <= 1
        assert alone.codes.size != encoded.codes.size or np.sum(alone.codes != encoded.codes) <= 1
    nearly = 1e-4 if either.backend.name == "onnx" else 1e-2  # a rounding to 8 bits may fall the other way
    for part, encoded, audio in zip(parts, together, either.decode(together), strict=True):
        assert audio.shape == part.shape
        assert np.abs(either.decode(encoded) - audio).max() < nearly


def test_pieces_give_what_the_whole_gives(
    either: DTMCodec, speech: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = either.encode(speech, 16_000)
    audio = either.decode(whole)
    monkeypatch.setattr(either.backend, "piece", 128)
    monkeypatch.setattr(chain, "BLOCK", 50)
    monkeypatch.setattr(chain, "Z1_KEPT", 1)
    pieces = either.encode_file(sample_path())
    assert np.sum(pieces.mask != whole.mask) <= 2
    assert pieces.codes.size != whole.codes.size or np.sum(pieces.codes != whole.codes) <= 1
    assert np.abs(np.concatenate(list(either.decode_blocks(whole))) - audio).max() < 1e-4


MEASURE = """
import resource, sys
from dtm_codec import DTMCodec
codec = DTMCodec.from_pretrained(sys.argv[1], backend="onnx")
for path in sys.argv[2:]:
    encoded = codec.encode_file(path)
    assert sum(block.size for block in codec.decode_blocks(encoded)) == encoded.num_samples
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_peak_memory_does_not_grow_with_length(tmp_path: Path, speech: np.ndarray) -> None:
    torch.manual_seed(0)
    layers = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    DTMCodec(replace(preset("s-vfr-50"), dim=16, heads=2, mlp_hidden=16, **layers)).save_pretrained(tmp_path / "model")
    for minutes in (2, 8):
        write_audio(tmp_path / f"{minutes}.flac", np.resize(speech, minutes * 60 * 16_000), 16_000)
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in ("model", "2.flac", "8.flac"))]
    short, long = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert long < short + 25  # the samples alone would take 23 MB more


def test_what_needs_torch_says_so(codec: DTMCodec, speech: np.ndarray) -> None:
    for call in (
        lambda: codec.network,
        lambda: codec.encode(speech, 16_000, effort=1),
        lambda: codec.stream_encoder(),
    ):
        with pytest.raises(ModelError, match="this needs backend = 'torch'; the codec was loaded with 'onnx'"):
            call()
    with pytest.raises(ModelError, match="device = 'cuda' with backend 'onnx'; allowed: 'cpu'"):
        codec.to("cuda")
    with pytest.raises(ModelError, match="backend = 'jax'; allowed: 'torch', 'onnx', 'onnx-int8'"):
        DTMCodec.from_pretrained(backend="jax")  # type: ignore[arg-type]


def test_vectors_and_statistics_are_arrays_on_both(codec: DTMCodec, speech: np.ndarray) -> None:
    in_torch = DTMCodec.from_pretrained(backend="torch")
    encoded = in_torch.encode(speech[:16_000], 16_000)
    np.testing.assert_allclose(codec.embed(encoded), in_torch.embed(encoded), atol=1e-5)
    np.testing.assert_allclose(codec.stage1(speech, 16_000), in_torch.stage1(speech, 16_000), atol=1e-2)
    assert codec.thin(encoded, bitrate=500) == in_torch.thin(encoded, bitrate=500)


def test_int8_is_close_and_a_model_of_its_own_kind(speech: np.ndarray) -> None:
    rounded, exact = (DTMCodec.from_pretrained(backend=name) for name in ("onnx-int8", "onnx"))
    audio, encoded = speech[:32_000], exact.encode(speech[:32_000], 16_000, bitrate=800)
    close, reference = rounded.decode(encoded), exact.decode(encoded)
    spectra = [np.log(np.abs(np.fft.rfft(x.reshape(-1, 640) * np.hanning(640))) + 1e-2) for x in (close, reference)]
    assert np.abs(spectra[0] - spectra[1]).mean() < 0.2
    assert rounded.encode(audio, 16_000, bitrate=800).bits == encoded.bits


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "onnx-int8"),
        ({"torchs_tokens": True}, "onnx"),
        ({"in_torch": True}, None),
        ({"in_torch": True, "torchs_tokens": True}, None),
        ({"device": "cuda"}, None),
    ],
)
def test_commands_take_the_quickest_that_does_what_is_asked(asked: dict[str, Any], expected: str | None) -> None:
    asked = {"device": "cpu", **asked}
    assert quickest(hub.load("small"), **asked) == expected
    assert quickest(hub.load("random:s-vfr-50"), **asked) is None  # no weights: torch makes them


def test_a_backend_that_is_named_wins() -> None:
    assert options.load_codec(None).backend.name == "onnx-int8"
    assert options.load_codec(None, backend="onnx").backend.name == "onnx"
    assert DTMCodec.from_pretrained().backend.name == "torch"


def test_a_saved_model_is_the_same(codec: DTMCodec, tmp_path: Path) -> None:
    assert codec.save_pretrained(tmp_path, "float16") == codec.model_id  # it came from 16 bits
    assert DTMCodec.from_pretrained(tmp_path, backend="onnx").model_id == codec.model_id
    with pytest.raises(ModelError, match="dtype = 'int4'; allowed: float32, float16, bfloat16"):
        codec.save_pretrained(tmp_path, "int4")


# Exports


def tiny_model(folder: Path) -> hub.LoadedModel:
    torch.manual_seed(0)
    layers = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    codec = DTMCodec(replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **layers))
    codec.token_model = TokenModel.from_counts(np.ones(16_384))
    codec.network.tau.fill_(0.25)
    codec.save_pretrained(folder)
    return hub.load(folder)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_an_export_says_what_it_holds(tmp_path: Path, precision: str) -> None:
    model = tiny_model(tmp_path / "model")
    sizes = export_graphs(model, tmp_path / "graphs", precision)  # type: ignore[arg-type]
    assert sizes == {path.name: path.stat().st_size for path in (tmp_path / "graphs").iterdir()}
    about = json.loads((tmp_path / "graphs" / GRAPHS_FILE).read_text())
    assert (about["model_id"], about["precision"], about["tau"]) == (model.model_id, precision, 0.25)
    assert about["reach"]["dec2"] == 64
    for description in about["graphs"].values():
        graph = onnx.load(tmp_path / "graphs" / description["file"])
        onnx.checker.check_model(graph, full_check=True)
        assert graph.opset_import[0].version == about["opset"]
        for kind, values in (("inputs", graph.graph.input), ("outputs", graph.graph.output)):
            assert [port["name"] for port in description[kind]] == [value.name for value in values]
    statistics = safetensors.numpy.load_file(tmp_path / "graphs" / about["token_model"])
    assert model.token_model is not None
    assert np.array_equal(statistics["members"], model.token_model.members)


def test_an_untrained_model_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'random:s-vfr-50' has no weights"):
        export_graphs(hub.load("random:s-vfr-50"), tmp_path / "graphs")
    with pytest.raises(ModelError, match="downsampler = 'conv' in ONNX"):
        export_graphs(replace(hub.load("random:s-conv"), tensors={}), tmp_path / "graphs")
    assert not (tmp_path / "graphs").exists()


def test_graphs_that_lie_in_a_folder_are_never_run(tmp_path: Path) -> None:
    """Graphs are built from a configuration and weights. A file that someone put there, with external data from
    outside of the folder, is not even opened."""
    model = tiny_model(tmp_path / "model")
    hostile = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], bytes(4), raw=True)
    onnx.external_data_helper.set_external_data(hostile, location="../../../../etc/passwd")
    graph = onnx.helper.make_graph([], "enc1", [], [], [hostile])
    for name in ("enc1.onnx", "model.onnx"):
        (tmp_path / "model" / name).write_bytes(onnx.helper.make_model(graph).SerializeToString())
    codec = DTMCodec.from_pretrained(tmp_path / "model", backend="onnx")
    assert isinstance(codec.backend, OnnxBackend)
    assert codec.decode(codec.encode(np.zeros(800, np.float32), 16_000)).size == 800
    export_graphs(model, tmp_path / "graphs")
    with pytest.raises(ModelError, match=r"is no model folder: it has no model\.safetensors"):
        DTMCodec.from_pretrained(tmp_path / "graphs", backend="onnx")
    shutil.rmtree(tmp_path / "graphs")


@pytest.mark.parametrize("backend", ["onnx", "onnx-int8"])
@pytest.mark.parametrize("name", ["front_end.project.weight", "enc1.blocks.0.mlp.out.weight", "dec2.norm.weight"])
def test_weights_that_overflow_are_computed_with_to_the_end(tmp_path: Path, name: str, backend: str) -> None:
    tiny_model(tmp_path)
    tensors = safetensors.numpy.load_file(tmp_path / hub.WEIGHTS_FILE)
    tensors[name][:] = 3e38
    safetensors.numpy.save_file(tensors, tmp_path / hub.WEIGHTS_FILE)
    codec = DTMCodec.from_pretrained(tmp_path, backend=backend)  # type: ignore[arg-type]
    with np.errstate(over="ignore", invalid="ignore"):
        assert codec.decode(codec.encode(np.ones(8000, np.float32), 16_000)).size == 8000


def test_a_graph_that_onnxruntime_refuses_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_model(tmp_path)
    codec = DTMCodec.from_pretrained(tmp_path, backend="onnx")
    monkeypatch.setattr("dtm_codec.backends.onnx.graph.Graph.to_bytes", lambda graph: b"no graph")
    with pytest.raises(ModelError, match=r"^onnxruntime [\d.]+ cannot load 'front_end': .+$"):
        codec.encode(np.zeros(800, np.float32), 16_000)


@pytest.mark.parametrize("change", [{"dim": 10**9}, {"window": 2**63}, {"head": "../../etc/passwd"}, {"hop_length": 0}])
def test_a_hostile_configuration_is_one_line_on_the_command_line(tmp_path: Path, change: dict[str, object]) -> None:
    tiny_model(tmp_path)
    config = json.loads((tmp_path / hub.CONFIG_FILE).read_text())
    (tmp_path / hub.CONFIG_FILE).write_text(json.dumps(config | change))
    words = ["encode", str(sample_path()), "--model", str(tmp_path), "--backend", "onnx", "-o", str(tmp_path / "x.dtm")]
    done = subprocess.run([sys.executable, "-m", "dtm_codec", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.dtm").exists()


def test_another_selector_makes_another_model_on_both() -> None:
    codecs = [DTMCodec.from_pretrained(backend=name) for name in ("onnx", "torch")]
    before = {codec.model_id for codec in codecs}
    chosen = SelectorConfig(name="threshold")
    for codec in codecs:
        codec.backend.use_selector(replace(codec.config, selector=chosen), build(chosen))
    after = {codec.model_id for codec in codecs}
    assert len(before) == len(after) == 1
    assert before != after
    assert all(np.isnan(codec.backend.tau) for codec in codecs)
