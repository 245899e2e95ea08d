"""Runs are YAML files that differ from their base by what matters; anything unknown is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dtm_codec import DTMCodec
from dtm_codec.config import PRESETS, preset
from dtm_codec.errors import ConfigError, ModelError
from dtm_codec.models import hub
from dtm_codec.training.config import DiscriminatorConfig, TrainConfig, load_config

CONFIGS = Path(__file__).parents[2] / "configs"
RUNS = sorted(path for family in ("paper", "small") for path in (CONFIGS / family).rglob("*.yaml"))


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_base_is_inherited_and_overridden(tmp_path: Path) -> None:
    write(
        tmp_path,
        base="seed: 5\noptimizer: {lr: 2e-4, clip: 0.5}\nmodel: s-vfr-50",
        run="base: base.yaml\noptimizer: {lr: 1e-3}\nmodel: {selector: {s_max: 4}}",
    )
    config = load_config(tmp_path / "run.yaml", ["optimizer.clip=2", "model.keep_ratio=0.25", "data.dev=some/dev"])
    assert (config.seed, config.optimizer.lr, config.optimizer.clip) == (5, 1e-3, 2.0)
    assert config.model.dim == preset("s-vfr-50").dim
    assert (config.model.selector.name, config.model.selector.s_max, config.model.keep_ratio) == ("ple", 4, 0.25)
    assert config.data.dev == "some/dev"


def test_a_run_can_be_built_like_a_trained_model(tmp_path: Path) -> None:
    small = hub.read_folder(hub.find("small")).config
    voice = load_config(CONFIGS / "small" / "voice.yaml")
    assert (voice.init_from, voice.model) == ("small", replace(small, name="voice"))
    assert not voice.discriminator.judges(voice.max_steps)
    folder = tmp_path / "mine"
    DTMCodec(replace(small, dim=32, heads=2, mlp_hidden=48)).save_pretrained(folder, transformers=True)
    write(tmp_path, run=f"model: {{like: {folder}, keep_ratio: 0.25}}")
    assert load_config(tmp_path / "run.yaml").model == replace(small, dim=32, heads=2, mlp_hidden=48, keep_ratio=0.25)
    with pytest.raises(ModelError, match="no model 'huge'"):
        load_config(CONFIGS / "small" / "voice.yaml", ["model.like=huge"])
    with pytest.raises(ConfigError, match=r"model\.like = 3"):
        load_config(CONFIGS / "small" / "voice.yaml", ["model.like=3"])
    with pytest.raises(ConfigError, match=r"model\.preset and model\.like were given"):
        load_config(CONFIGS / "small" / "voice.yaml", ["model.preset=s-vfr-50"])


def test_configuration_survives_a_round_trip() -> None:
    config = load_config(CONFIGS / "small" / "vfr-50.yaml")
    assert TrainConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.learning_rate=1", "optimizer.learning_rate"),
        ("model.dimension=1", "dimension"),
        ("optimizer.lr=fast", "optimizer.lr"),
        ("optimizer.lr=-1", "optimizer.lr"),
        ("data.gain_db=[3, -3]", "data.gain_db"),
        ("discriminator.crop_seconds=9", "discriminator.crop_seconds"),
        ("model=s-vfr-51", "s-vfr-51"),
        ("seed", "key=value"),
        ("precision=16-mixed", "bf16-mixed"),
        ("optimizer.min_lr=1", "optimizer.min_lr = 1"),
        ("ema_decay=1", "ema_decay = 1.0; allowed: 0 <= ema_decay < 1"),
        ("optimizer.betas=[1, 0]", "allowed: two numbers, 0 <= beta < 1"),
        ("optimizer.weight_decay=1", "allowed: 0 <= weight_decay < 1"),
        ("controller.momentum=1", "allowed: 0 <= momentum < 1"),
    ],
)
def test_mistakes_are_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(CONFIGS / "small" / "vfr-50.yaml", [override])


def test_bases_that_go_in_circles_or_are_missing(tmp_path: Path) -> None:
    write(tmp_path, a="base: b.yaml", b="base: a.yaml", c="base: d.yaml", e="[1, 2", f="- 1")
    for name, message in {"a": "inherits from itself", "c": "no such", "e": "e.yaml", "f": "mapping"}.items():
        with pytest.raises(ConfigError, match=message):
            load_config(tmp_path / f"{name}.yaml")


@pytest.mark.parametrize("path", RUNS, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_every_shipped_configuration_loads(path: Path) -> None:
    load_config(path)


def test_every_preset_has_its_configuration() -> None:
    runs = [*(CONFIGS / "paper").glob("*.yaml"), *(CONFIGS / "small").glob("*.yaml")]
    assert {load_config(run).model.name for run in runs} == {*PRESETS, "s-live", "voice"}


def test_paper_runs_are_the_papers() -> None:
    for path in (CONFIGS / "paper").glob("*.yaml"):
        config = load_config(path)
        assert (config.max_steps, config.data.batch_size, config.data.crop_seconds) == (600_000, 64, 4.0)
        assert (config.optimizer.lr, config.optimizer.betas, config.optimizer.weight_decay) == (1e-4, (0.8, 0.9), 0.01)
        assert (config.loss.mel, config.loss.adversarial, config.loss.feature_matching) == (15, 1, 1)
    for path in (CONFIGS / "paper" / "finetune").glob("*.yaml"):
        config = load_config(path)
        assert (config.max_steps, config.optimizer.lr_at(0), config.optimizer.lr_at(49_999)) == (50_000, 1e-5, 1e-5)
        assert config.init_from == "runs/random"


@pytest.mark.parametrize(
    "path", [path for path in RUNS if path.parent.name != "finetune"], ids=lambda p: str(p.relative_to(CONFIGS))
)
def test_what_is_logged_has_discriminators(path: Path) -> None:
    config = load_config(path)
    logged = range(config.log_every, 20 * config.log_every, config.log_every)  # steps done
    assert all(DiscriminatorConfig(every=config.discriminator.every).judges(done - 1) for done in logged)


def test_discriminators_have_their_turns() -> None:
    assert [step for step in range(9) if DiscriminatorConfig(start=3, every=2).judges(step)] == [3, 5, 7]
