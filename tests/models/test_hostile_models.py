"""Model folders from elsewhere: looked at before they are trusted. Whatever they hold, it is one error."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from dtm_codec import DTMCodec
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.config import PRESETS, QuantizerConfig, preset
from dtm_codec.errors import ConfigError, ModelError
from dtm_codec.models import hub, weights
from dtm_codec.network import Network

LAYERS = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)


@pytest.fixture(scope="module")
def codec() -> DTMCodec:
    torch.manual_seed(0)
    config = replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **LAYERS)
    codec = DTMCodec(replace(config, quantizer=QuantizerConfig(codebook_size=64)))
    codec.token_model = TokenModel.from_counts(np.ones(64))
    return codec


@pytest.fixture(scope="module")
def exported(codec: DTMCodec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    codec.save_pretrained(folder)
    hub.read_folder(folder)
    return folder


HOSTILE = {
    "dim": [10**9, 10**30, 0, -256, 1e9, "256", None, True, [256]],
    "enc1_layers": [100_000, 0],
    "window": [2**63, 2**31, 0],
    "mlp_hidden": [10**12],
    "heads": [10**6],
    "norm_eps": [10**400, math.nan, math.inf, 0],
    "keep_ratio": [5e-324, math.nan, 2],
    "name": ["a" * 10**5, "\x1b[31m", ""],
    "quantizer": [
        {"codebook_size": 2**24},
        {"codebook_size": 2**70},
        {"dim": 10**9},
        {"kind": "fsq", "levels": [2] * 10**5},
        {"kind": "fsq", "levels": [10**9]},
        [],
    ],
    "selector": [{"s_max": 10**18}, {"name": "dp", "s_max": 2**40}, "ple"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in HOSTILE.items() for value in values])
def test_hostile_configurations_are_refused_before_anything_is_allocated(
    exported: Path, tmp_path: Path, key: str, value: Any
) -> None:
    config = json.loads((exported / hub.CONFIG_FILE).read_text())
    (tmp_path / hub.CONFIG_FILE).write_text(json.dumps(config | {key: value}))
    (tmp_path / hub.WEIGHTS_FILE).symlink_to(exported / hub.WEIGHTS_FILE)
    with pytest.raises((ConfigError, ModelError)) as caught:
        hub.read_folder(tmp_path)
    assert len(str(caught.value)) < 1000
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["[" * 10**5 + "]" * 10**5, '{"a":' * 10**4, '{"dim": ' + "9" * 5000 + "}", "[]", "null", "\xff", " " * 2**21],
)
def test_json_that_is_no_configuration_is_one_error(exported: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / hub.CONFIG_FILE).write_bytes(text.encode("latin-1"))
    (tmp_path / hub.WEIGHTS_FILE).symlink_to(exported / hub.WEIGHTS_FILE)
    with pytest.raises((ConfigError, ModelError), match=re.escape(str(tmp_path / hub.CONFIG_FILE))):
        hub.read_folder(tmp_path)


def changed(tensor: torch.Tensor, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[0] = value
    return tensor


STATISTICS = hub.TOKEN_MODEL_PREFIX


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("head.project.weight", lambda t: changed(t, math.nan), "holds NaN or infinity"),
        ("head.project.weight", lambda t: changed(t, math.inf), "holds NaN or infinity"),
        ("head.project.weight", lambda t: t.to(torch.int8), "is I8; allowed: F32, F16, BF16"),
        ("head.project.weight", lambda t: t > 0, "is BOOL; allowed"),
        ("head.project.weight", lambda t: t.to(torch.complex64), "is C64; allowed"),
        ("head.project.weight", lambda t: t.double(), "is F64; allowed"),
        ("head.project.weight", lambda t: t[:1].clone(), "has shape"),
        ("tau", lambda t: torch.full_like(t, -math.inf), "tau holds NaN or infinity"),
        ("tau", lambda t: t.float(), "is F32; allowed: F64"),
        (STATISTICS + "class_of", lambda t: t.to(torch.bfloat16), r"'class_of' \(BF16, \(64,\)\); allowed"),
        (STATISTICS + "members", lambda t: torch.tensor(1, dtype=torch.int32), r"'members' \(I32, \(\)\); allowed"),
        (STATISTICS + "members", lambda t: t[:7].clone(), "token statistics of 7 codes; the config has 64"),
        (STATISTICS + "members", lambda t: -t, "token frequencies"),
        (STATISTICS + "transitions", lambda t: t.repeat(1, 2), r"'transitions' of shape \(1, 2\); allowed: \(C, C\)"),
        (STATISTICS + "transitions", lambda t: t.repeat(1025, 1025), r"allowed: \(C, C\) with C up to 1024"),
        (STATISTICS + "foreign", lambda t: torch.zeros(1), r"'foreign' \(F32, \(1,\)\); allowed"),
    ],
)
def test_hostile_weights_are_refused_by_name(
    exported: Path, tmp_path: Path, name: str, change: Callable[[Any], torch.Tensor], message: str
) -> None:
    shutil.copy(exported / hub.CONFIG_FILE, tmp_path)
    tensors = safetensors.torch.load_file(exported / hub.WEIGHTS_FILE)
    tensors[name] = change(tensors.get(name))
    safetensors.torch.save_file(tensors, tmp_path / hub.WEIGHTS_FILE)
    with pytest.raises(ModelError, match=message) as caught:
        hub.read_folder(tmp_path)
    assert str(tmp_path / hub.WEIGHTS_FILE) in str(caught.value)


def test_statistics_of_gigabytes_are_refused_before_they_are_read(exported: Path, tmp_path: Path) -> None:
    """The file is sparse: a hole of 1.6 GB takes no room on disk, but would in memory."""
    shutil.copy(exported / hub.CONFIG_FILE, tmp_path)
    data = (exported / hub.WEIGHTS_FILE).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8 : 8 + length]), data[8 + length :]
    size = 4 * 20_000**2
    offsets = [len(tensors), len(tensors) + size]
    header["unused"] = header.pop(STATISTICS + "transitions")  # there may be no gap
    header[STATISTICS + "transitions"] = {"dtype": "I32", "shape": [20_000, 20_000], "data_offsets": offsets}
    text = json.dumps(header).encode()
    with (tmp_path / hub.WEIGHTS_FILE).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + tensors)
        file.truncate(8 + len(text) + len(tensors) + size)
    with pytest.raises(ModelError, match=r"'transitions' of shape \(20000, 20000\); allowed"):
        hub.read_folder(tmp_path)


def test_shapes_are_known_without_a_network() -> None:
    for preset_name in PRESETS:
        config = replace(preset(preset_name), dim=64, heads=2, mlp_hidden=32, enc1_layers=1, enc2_layers=3)
        network = Network(config)
        expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        expected.pop("quantizer.idle", None)  # of training
        assert weights.shapes(config) == expected
        assert weights.num_parameters(config) == sum(p.numel() for p in network.parameters())


def test_loading_does_not_load_torchs_compiler() -> None:
    """It takes seconds."""
    code = "import sys; from dtm_codec import DTMCodec; DTMCodec.from_pretrained(); sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such modes there")
def test_colleagues_can_read_exported_weights(codec: DTMCodec, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        codec.save_pretrained(tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {hub.CONFIG_FILE: 0o644, hub.WEIGHTS_FILE: 0o644}
