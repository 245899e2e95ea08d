"""Exports hold averaged weights and token statistics; a published state resumes and fine-tunes as a checkpoint does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import training_support as support
from lightning_fabric import Fabric

from dtm_codec import DTMCodec
from dtm_codec.cli import main
from dtm_codec.config import STACKS
from dtm_codec.errors import ModelError
from dtm_codec.models import hub
from dtm_codec.speech.audio import read_audio, sample_path
from dtm_codec.training import checkpoints
from dtm_codec.training.publishing import export
from dtm_codec.training.run import train
from dtm_codec.training.trainer import Trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    train(support.tiny(folder, "max_steps=4"), folder / "run")
    return folder / "run"


def test_finished_run_has_a_model_with_token_statistics(run: Path) -> None:
    codec = DTMCodec.from_pretrained(run / "export")
    assert codec.token_model is not None
    audio, rate = read_audio(sample_path())
    encoded = codec.encode(audio[:rate], rate)
    assert codec.from_bytes(codec.to_bytes(encoded)) == encoded
    assert codec.decode(encoded).shape == (rate,)


def test_a_run_and_its_export_say_at_which_bitrates_the_model_was_trained(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "model")
    known, again = (
        DTMCodec.from_pretrained(folder).trained_bitrates for folder in (run / "export", tmp_path / "model")
    )
    assert known is not None
    assert known == again
    low, high = known
    config = DTMCodec.from_pretrained(run / "export").config
    assert low <= config.layout.bitrate(config.keep_ratio * config.frame_rate) <= high


def test_export_has_averaged_weights(run: Path, tmp_path: Path) -> None:
    told: list[float] = []
    model_id = export(run, tmp_path / "model", data=support.SAMPLES, minutes=0.05, on_progress=told.append)
    assert told
    assert told[-1] == pytest.approx(1.0)
    codec = DTMCodec.from_pretrained(tmp_path / "model")
    assert codec.model_id == model_id
    average = checkpoints.load(run)["average"]
    for name, tensor in codec.network.state_dict().items():
        if name != "quantizer.idle":
            assert torch.equal(tensor, average[name]), name
    assert export(run, tmp_path / "half", name="half", dtype=torch.float16).startswith("half:")
    size, half = (sum(f.stat().st_size for f in (tmp_path / n).iterdir()) for n in ("model", "half"))
    assert half < 0.7 * size
    assert DTMCodec.from_pretrained(tmp_path / "half").token_model is None


def test_a_run_for_streams_and_files_exports_both(tmp_path: Path) -> None:
    limited = support.tiny(tmp_path, "max_steps=1", "model.enc1_lookahead=0", "model.dec2_lookahead=2")
    train(limited, tmp_path / "run")
    folders = [tmp_path / "streams", tmp_path / "files"]
    for folder, whole_window in zip(folders, (False, True), strict=True):
        export(tmp_path / "run", folder, whole_window=whole_window)
    streams, files = (DTMCodec.from_pretrained(folder) for folder in folders)
    assert streams.config == limited.model
    assert files.config == limited.model.unlimited
    assert [files.config.lookahead(stack) for stack in STACKS] == [None] * 4
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second


def test_an_export_can_be_blended_with_where_the_run_began(run: Path, tmp_path: Path) -> None:
    alone, other, blended = (tmp_path / name for name in ("alone", "other", "blended"))
    export(run, alone)
    DTMCodec(DTMCodec.from_pretrained(alone).config).save_pretrained(other)
    export(run, blended, blend=(str(other), 0.25))
    ours, theirs, both = (hub.load(folder).tensors for folder in (alone, other, blended))
    assert ours is not None
    assert theirs is not None
    assert both is not None
    for name in ours:
        if name in ("tau", "quantizer.codebook"):
            np.testing.assert_array_equal(both[name], ours[name])
        else:
            np.testing.assert_allclose(both[name], 0.75 * ours[name] + 0.25 * theirs[name], atol=1e-6)
    assert not np.array_equal(ours["quantizer.codebook"], theirs["quantizer.codebook"])


@pytest.mark.parametrize(
    ("blend", "message"),
    [
        ("small", "allowed: MODEL=SHARE"),
        ("small=2", "blend = 2.0; allowed: a share between 0 and 1"),
        ("small=0.5", "blend: 'small' is built in another way"),
        ("random:s-vfr-50=0.5", "blend: 'random:s-vfr-50' is built in another way"),
    ],
)
def test_what_cannot_be_blended_is_refused(
    run: Path, tmp_path: Path, blend: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["export", str(run), "-o", str(tmp_path / "out"), "--blend", blend])
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_commands_run_on_the_device_that_is_asked_for(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(run), "-o", str(tmp_path / "model"), "--device", "cuda:99"])
    assert stopped.value.code == 2
    assert "device = 'cuda:99'; allowed: one that torch finds here" in capsys.readouterr().err
    support.run(tmp_path, tmp_path / "run", "--device", "cpu", "--max-steps", "1", "accelerator=none-such")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["accelerator"] == "cpu"


def test_published_state_is_the_checkpoint(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "model", full=True)
    published = tmp_path / "model" / checkpoints.PUBLISHED
    assert_equal(checkpoints.load(published), checkpoints.load(run))


def assert_equal(ours: object, theirs: object) -> None:
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        assert set(ours) == set(theirs)
        for key in theirs:
            assert_equal(ours[key], theirs[key])
    elif isinstance(theirs, list | tuple):
        assert isinstance(ours, list)
        for ours_item, theirs_item in zip(ours, theirs, strict=True):
            assert_equal(ours_item, theirs_item)
    elif isinstance(theirs, torch.Tensor):
        np.testing.assert_array_equal(ours, theirs)  # NaN equals NaN
    else:
        assert ours == theirs


def test_a_published_state_resumes_to_the_same_curve(run: Path, tmp_path: Path) -> None:
    config = support.tiny(tmp_path, "max_steps=6", "token_minutes=0")
    shutil.copytree(run, tmp_path / "checkpoint")
    train(config, tmp_path / "checkpoint", resume=True)
    export(run, tmp_path / "published", full=True)
    train(config, tmp_path / "published", resume=True)
    assert support.curve(tmp_path / "published") == support.curve(tmp_path / "checkpoint")[-2:]
    assert DTMCodec.from_pretrained(tmp_path / "published").config == config.model  # still a model


@pytest.mark.parametrize("source", ["run", "checkpoint", "export", "with discriminators", "published"])
def test_fine_tuning_takes_over_what_fits(run: Path, tmp_path: Path, source: str) -> None:
    paths = {
        "run": run,
        "checkpoint": run / "step-00000004.ckpt",
        "export": run / "export",
        "with discriminators": tmp_path / "d",
        "published": tmp_path / "m",
    }
    if source == "with discriminators":
        export(run, paths[source], discriminators=True)
    if source == "published":
        export(run, paths[source], full=True)
    changes = ["model.selector.name=threshold", "model.quantizer.codebook_size=32", "discriminator.start=0"]
    config = support.tiny(tmp_path, *changes, f"init_from={paths[source]}")
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    state = checkpoints.load(run)
    ours = trainer.network.state_dict()
    for name in ("enc1.norm.weight", "head.project.weight", "up.embedding", "quantizer.project_in.weight"):
        assert torch.equal(ours[name], state["average"][name]), name
    assert ours["quantizer.codebook"].shape == (32, 4)
    assert torch.isnan(ours["tau"])  # another selector measures something else
    name = "members.0.convolutions.0.parametrizations.weight.original1"
    same = torch.equal(trainer.discriminators.state_dict()[name], state["discriminators"][name])
    assert same == (source != "export")


def test_damaged_discriminators_are_named(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "model", discriminators=True)
    file = tmp_path / "model" / "discriminators.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    config = support.tiny(tmp_path, f"init_from={tmp_path / 'model'}")
    with pytest.raises(ModelError, match=r"discriminators\.safetensors: not a safetensors file"):
        Trainer(config, Fabric(accelerator="cpu", devices=1))


@pytest.mark.parametrize("selector", ["stride", "random"])
def test_a_rate_that_is_not_steered_is_the_new_one(tmp_path: Path, selector: str) -> None:
    own = f"model.selector.name={selector}"
    train(support.tiny(tmp_path, own, "max_steps=1", "token_minutes=0"), tmp_path / "run")
    config = support.tiny(tmp_path, own, f"init_from={tmp_path / 'run'}", "model.keep_ratio=0.25")
    assert float(Trainer(config, Fabric(accelerator="cpu", devices=1)).network.tau) == 4


def test_same_selector_keeps_its_tau(run: Path, tmp_path: Path) -> None:
    trainer = Trainer(support.tiny(tmp_path, f"init_from={run}"), Fabric(accelerator="cpu", devices=1))
    assert float(trainer.network.tau) == float(checkpoints.load(run)["average"]["tau"])


def test_a_deeper_network_begins_as_what_it_grew_from(run: Path, tmp_path: Path) -> None:
    depths = ["model.enc2_layers=3", "model.dec1_layers=2", "model.dec2_layers=4"]
    grown = Trainer(support.tiny(tmp_path, *depths, f"init_from={run}"), Fabric(accelerator="cpu", devices=1)).network
    before = Trainer(support.tiny(tmp_path, f"init_from={run}"), Fabric(accelerator="cpu", devices=1)).network
    audio = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 8000), np.float32) / 10)
    torch.testing.assert_close(grown(audio).audio, before(audio).audio)
    grown(audio).audio.square().mean().backward()
    added = [block for stack in (grown.enc2, grown.dec1, grown.dec2) for block in list(stack.blocks)[1:]]
    assert len(added) == 6
    for block in added:
        assert isinstance(block.attention_scale.grad, torch.Tensor)
        assert block.attention_scale.grad.abs().max() > 0  # they can learn from the first step on
