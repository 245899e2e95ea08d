"""Configurations are validated, named in errors, and survive JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dtm_codec.config import PRESETS, CodecConfig, SelectorConfig, config_values, model_config, preset
from dtm_codec.errors import ConfigError
from dtm_codec.layout import Layout


@pytest.mark.parametrize("config", PRESETS.values(), ids=list(PRESETS))
def test_presets_survive_json(config: CodecConfig) -> None:
    assert CodecConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dimm": 3}, "unknown key 'dimm'"),
        ({"selector": {"nme": "ple"}}, "unknown key 'selector.nme'"),
        ({"dim": 30}, "dim = 30; allowed: a multiple of"),
        ({"dim": "512"}, "dim = '512'; expected int"),
        ({"dim": True}, "dim = True; expected int"),
        ({"hop_length": 161}, "hop_length = 161"),
        ({"name": "Small Model"}, "name = 'Small Model'"),
        ({"name": "much-too-long"}, "name = 'much-too-long'"),
        ({"keep_ratio": 0}, "keep_ratio = 0.0"),
        ({"norm_eps": float("nan")}, "norm_eps = nan"),
        ({"keep_ratio": 0.25, "selector": {"s_max": 2}}, "selector.s_max = 2; allowed: >= 4"),
        ({"keep_ratio": 0.25, "selector": {"name": "stride", "s_max": 2}}, "selector.s_max = 2; allowed: >= 4"),
        ({"keep_ratio": 0.001, "selector": {"name": "stride"}}, "keep_ratio = 0.001; allowed: >= 1 / 255"),
        ({"selector": {"name": "best"}}, "selector.name = 'best'; allowed: 'ple'"),
        ({"selector": {"name": "dp"}}, "selector.s_max = None"),
        ({"selector": 3}, "selector: expected a mapping"),
        (
            {"quantizer": {"kind": "fsq", "levels": [5, 5], "codebook_size": 24}},
            "quantizer.codebook_size = 24; allowed: 25",
        ),
        ({"quantizer": {"levels": [5, 5]}}, "quantizer.levels"),
        ({"downsampler": "conv"}, "upsampler = 'mask'"),
        ({"downsampler": "conv", "upsampler": "conv"}, "selector.name = 'ple'; allowed: 'stride'"),
    ],
)
def test_impossible_values_name_the_field_and_what_is_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CodecConfig.from_dict(change)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("upsampler", "masks"), ("downsampler", "packed"), ("head", "vocos"), ("stage2_positions", "ranks"), ("dim", 2.5)],
)
def test_a_slip_in_python_builds_no_other_network(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{field} = {value!r}"):
        replace(preset("s-vfr-50"), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="name = 'plee'"):
        SelectorConfig(name="plee")  # type: ignore[arg-type]


def test_the_papers_operating_points() -> None:
    """Content + position bits a second of Table 1, and the matched fixed rates."""
    for token_rate, total in ((25, 400), (40, 640), (50, 800), (80, 1280)):
        vfr, ffr = preset(f"vfr-{token_rate}"), preset(f"ffr-{token_rate}")
        assert vfr.frame_rate * (vfr.keep_ratio * vfr.quantizer.token_bits + 1) == pytest.approx(total)
        assert ffr.frame_rate / ffr.stride * ffr.quantizer.token_bits == pytest.approx(total)
    assert preset("ffr-57").frame_rate / 2 * 14 == pytest.approx(800, rel=1e-3)


def test_unknown_preset_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=r"'tiny'.*vfr-50"):
        preset("tiny")


@pytest.mark.parametrize("bitrates", [None, (400.0, 1300.0)])
def test_what_is_written_to_config_json_is_read_again(bitrates: tuple[float, float] | None) -> None:
    config = preset("s-conv")
    assert model_config(config_values(config, bitrates)) == (config, bitrates)


def test_a_layout_has_a_stride_at_a_fixed_rate_alone() -> None:
    assert preset("vfr-50").layout == Layout(sample_rate=16_000, hop_length=160, token_bits=14, stride=None)
    assert preset("ffr-50").layout == Layout(sample_rate=16_000, hop_length=160, token_bits=16, stride=2)
