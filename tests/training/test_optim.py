"""Every parameter is trained by exactly one group; the average follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dtm_codec.config import SMALL_PRESETS
from dtm_codec.errors import ConfigError
from dtm_codec.network import Network
from dtm_codec.training.config import DiscriminatorConfig, OptimizerConfig
from dtm_codec.training.discriminators import Discriminators
from dtm_codec.training.optim import Average, parameter_groups

TINY = {"dim": 32, "heads": 2, "mlp_hidden": 48, "enc1_layers": 1, "enc2_layers": 1, "dec1_layers": 1, "dec2_layers": 1}


@pytest.mark.parametrize("name", SMALL_PRESETS)
def test_every_parameter_is_in_exactly_one_group(name: str) -> None:
    network = Network(replace(SMALL_PRESETS[name], **TINY))
    groups = parameter_groups(network, 0.01)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in network.parameters())
    decaying = {id(p) for p in groups[0]["params"]}
    for parameter_name, parameter in network.named_parameters():
        kept = parameter.ndim == 1 or "codebook" in parameter_name
        assert (id(parameter) not in decaying) == kept, parameter_name


def test_mask_embedding_is_trained_and_does_not_decay() -> None:
    network = Network(replace(SMALL_PRESETS["s-vfr-50"], **TINY))
    embedding = network.get_parameter("up.embedding")
    decay, keep = (group["params"] for group in parameter_groups(network, 0.01))
    assert any(p is embedding for p in keep)
    assert not any(p is embedding for p in decay)


def test_weight_norm_gains_do_not_decay() -> None:
    ensemble = Discriminators(DiscriminatorConfig(period_channels=(4,), stft_channels=2))
    decay, keep = (group["params"] for group in parameter_groups(ensemble, 0.01))
    assert len(decay) + len(keep) == len(list(ensemble.parameters()))
    gains = [p for name, p in ensemble.named_parameters() if name.endswith("original0")]
    assert gains
    assert all(any(p is gain for p in keep) for gain in gains)


def test_learning_rate_warms_up_and_decays_linearly() -> None:
    schedule = OptimizerConfig(lr=1e-4, min_lr=1e-5, warmup_steps=10, decay_steps=110)
    assert schedule.lr_at(0) == pytest.approx(1e-5)
    assert schedule.lr_at(9) == schedule.lr_at(10) == pytest.approx(1e-4)
    assert schedule.lr_at(60) == pytest.approx((1e-4 + 1e-5) / 2)
    assert schedule.lr_at(110) == schedule.lr_at(10_000) == pytest.approx(1e-5)
    held = replace(schedule, decay_start=60)
    assert held.lr_at(10) == held.lr_at(60) == pytest.approx(1e-4)
    assert held.lr_at(85) == pytest.approx((1e-4 + 1e-5) / 2)
    with pytest.raises(ConfigError, match=r"decay_steps = 110; allowed: > warmup_steps = 10 and decay_start = 110"):
        replace(schedule, decay_start=110)


def test_average_follows_and_copies_buffers() -> None:
    module = torch.nn.BatchNorm1d(2)
    average = Average(module, decay=0.5)
    with torch.no_grad():
        module.weight.fill_(3.0)
        module.running_mean.fill_(7.0)
    average.update(module, step=1000)
    assert torch.equal(average.weights["weight"], torch.full((2,), 2.0))
    assert torch.equal(average.weights["running_mean"], torch.full((2,), 7.0))
    average.update(module, step=0)  # the first steps count for more: decay 1 / 10
    assert torch.allclose(average.weights["weight"], torch.full((2,), 2.9))


def test_a_revived_code_is_where_it_is_not_where_it_was() -> None:
    network = Network(replace(SMALL_PRESETS["s-vfr-50"], **TINY))
    average = Average(network, decay=0.99)
    with torch.no_grad():
        network.quantizer.codebook[3] = -network.quantizer.codebook[3]
        network.head.project.weight += 1
    average.update(network, step=1000)
    assert torch.equal(average.weights["quantizer.codebook"], network.quantizer.codebook)
    assert not torch.equal(average.weights["head.project.weight"], network.head.project.weight)
