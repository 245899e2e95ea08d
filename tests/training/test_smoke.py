"""A few steps of VFR and FFR with discriminators on bundled speech: losses fall, every parameter moves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import training_support as support
from lightning_fabric import Fabric

from dtm_codec.training.data import Crops, InMemory, find_utterances
from dtm_codec.training.trainer import Trainer

STEPS = 24


@pytest.mark.parametrize("selector", ["ple", "stride"])
def test_losses_fall_and_every_parameter_moves(tmp_path: Path, selector: str) -> None:
    overrides = [f"model.selector.name={selector}", "discriminator.start=0", "discriminator.every=1"]
    config = support.tiny(tmp_path, *overrides, "optimizer.lr=2e-3")
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    before = {name: p.clone() for name, p in named_parameters(trainer).items()}
    crops = Crops(InMemory(find_utterances(support.SAMPLES), 16_000), config.data, config.crop_samples, seed=0)
    metrics = [trainer.train_step(crops[step]) for step in range(STEPS)]
    for loss in ("mel", "discriminator"):
        first, last = (sum(m[loss] for m in part) / 4 for part in (metrics[:4], metrics[-4:]))
        assert last < 0.97 * first, f"{loss}: {first:.3f} -> {last:.3f}"
    still = [name for name, p in named_parameters(trainer).items() if torch.equal(p, before[name])]
    assert not still
    if selector == "ple":
        assert all(0.05 < m["keep_ratio"] < 1 for m in metrics)
    else:
        assert all(m["keep_ratio"] == 0.5 for m in metrics)
        assert trainer.controller is None


def named_parameters(trainer: Trainer) -> dict[str, torch.Tensor]:
    modules = {"codec": trainer.network, "discriminators": trainer.discriminators}
    return {f"{k}.{name}": p for k, module in modules.items() for name, p in module.named_parameters()}
