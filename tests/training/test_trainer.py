"""Law 8 and what law 7 needs: a resumed run is the same run, several processes compute what one does; clean ends.

tests/test_kill_tests.py kills runs.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import training_support as support
from lightning_fabric import Fabric

from dtm_codec import DTMCodec
from dtm_codec.errors import ConfigError, DataError
from dtm_codec.system.locks import FolderInUseError, folder_in_use
from dtm_codec.training import checkpoints
from dtm_codec.training import run as training_run
from dtm_codec.training.config import TrainConfig
from dtm_codec.training.data import Batch, Crops, InMemory, batches, find_utterances
from dtm_codec.training.run import _stop_signals, train
from dtm_codec.training.trainer import Trainer, TrainingError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve steps that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    train(support.tiny(folder), folder / "run")
    return folder / "run"


def test_weights_after_resuming_are_the_same(tmp_path: Path, whole: Path) -> None:
    config = support.tiny(tmp_path)
    train(support.tiny(tmp_path, "max_steps=5"), tmp_path / "run")
    train(config, tmp_path / "run", resume=True)
    ours, theirs = (checkpoints.load(folder / "step-00000012.ckpt") for folder in (tmp_path / "run", whole))
    for part in ("codec", "average", "discriminators"):
        assert all(torch.equal(ours[part][name], theirs[part][name]) for name in theirs[part]), part
    assert ours["controller"] == theirs["controller"]


def test_two_processes_compute_what_one_does(tmp_path: Path) -> None:
    steps = ["max_steps=20", "checkpoint_every=20"]
    train(support.tiny(tmp_path, *steps), tmp_path / "one")
    support.run(tmp_path, tmp_path / "two", *steps, "devices=2", "strategy=ddp")
    assert_same_training(tmp_path / "one", tmp_path / "two")


def test_only_weights_that_are_named_learn(tmp_path: Path) -> None:
    config = support.tiny(tmp_path, "train_only=[quantizer.project, head]")
    train(config, tmp_path / "run")
    before = Trainer(config, Fabric(accelerator="cpu", devices=1)).network.state_dict()
    after = checkpoints.load(tmp_path / "run" / "step-00000012.ckpt")["codec"]
    changed = {name for name in after if not torch.equal(after[name], before[name])} - {"tau", "quantizer.idle"}
    assert changed == {name for name in after if name.startswith(("quantizer.project", "head."))}


def test_a_name_that_no_weight_has_is_refused(tmp_path: Path) -> None:
    config = support.tiny(tmp_path, "train_only=[encoder]")
    with pytest.raises(ConfigError, match=r"train_only = 'encoder'.*allowed: front_end, enc1, .*head"):
        Trainer(config, Fabric(accelerator="cpu", devices=1))


def test_two_processes_draw_the_masks_of_one(tmp_path: Path) -> None:
    options = ["max_steps=4", "model.selector.name=random", "model.selector.s_max=null"]
    train(support.tiny(tmp_path, *options), tmp_path / "one")
    support.run(tmp_path, tmp_path / "two", *options, "devices=2", "strategy=ddp")
    assert_same_training(tmp_path / "one", tmp_path / "two")


def test_weights_split_over_two_processes_and_joined_again(tmp_path: Path, whole: Path) -> None:
    """Each change of strategy goes through a checkpoint."""
    two, split = tmp_path / "two", ["devices=2", "strategy=fsdp"]
    support.run(tmp_path, two, "max_steps=6", *split)
    train(support.tiny(tmp_path, "max_steps=8"), two, resume=True)
    support.run(tmp_path, two, "--resume", *split)
    assert_same_training(whole, two)
    exported = DTMCodec.from_pretrained(two / "export").network.state_dict()
    assert torch.equal(exported["quantizer.codebook"], checkpoints.load(two)["average"]["quantizer.codebook"])


def assert_same_training(one: Path, two: Path) -> None:
    """Up to rounding."""
    ours, theirs = checkpoints.load(one), checkpoints.load(two)
    assert torch.equal(ours["codec"]["quantizer.idle"], theirs["codec"]["quantizer.idle"])
    assert ours["codec"]["tau"].item() == pytest.approx(theirs["codec"]["tau"].item(), rel=1e-6)
    for part in ("codec", "average", "discriminators"):
        for name, tensor in ours[part].items():
            torch.testing.assert_close(tensor, theirs[part][name], rtol=1e-3, atol=2e-4, msg=f"{part}.{name}")
    for a, b in zip(support.curve(one), support.curve(two), strict=True):
        assert a["mel"] == pytest.approx(b["mel"], rel=1e-3)
        assert a["keep_ratio"] == pytest.approx(b["keep_ratio"], abs=0.01)


def test_controller_reaches_the_keep_ratio(tmp_path: Path) -> None:
    """From a tau three times too large, with features that hold still."""
    still = ["optimizer.lr=1e-9", "optimizer.min_lr=1e-9", "controller.eta0=0.5", "discriminator.start=1000"]
    config = support.tiny(tmp_path, *still)
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    crops = Crops(InMemory(find_utterances(support.SAMPLES), 16_000), config.data, config.crop_samples, seed=0)
    trainer.network.tau.fill_(3 * trainer.network.calibrated_tau(crops[0].audio))
    kept = [trainer.train_step(crops[step])["keep_ratio"] for step in range(80)]
    assert sum(kept[:5]) / 5 < 0.3
    assert sum(kept[-20:]) / 20 == pytest.approx(0.5, abs=0.05)
    assert trainer.controller is not None
    assert float(trainer.average.weights["tau"]) == float(trainer.network.tau) == trainer.controller.tau


def test_jitter_trains_at_many_rates_around_the_steered_tau(tmp_path: Path) -> None:
    still = ["optimizer.lr=1e-9", "optimizer.min_lr=1e-9", "discriminator.start=1000", "controller.eta0=0"]
    config = support.tiny(tmp_path, *still, "controller.jitter=0.6")
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    crops = Crops(InMemory(find_utterances(support.SAMPLES), 16_000), config.data, config.crop_samples, seed=0)
    metrics = [trainer.train_step(crops[step]) for step in range(20)]
    kept = [m["keep_ratio"] for m in metrics]
    assert min(kept) < 0.4
    assert max(kept) > 0.6
    assert {m["tau"] for m in metrics} == {float(trainer.network.tau)}


def test_lost_tokens_do_not_reach_the_decoder_and_each_crop_draws_its_own(tmp_path: Path) -> None:
    config = support.tiny(tmp_path, "packet_loss.share=0.6", "discriminator.start=1000")
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    heard: list[int] = []
    trainer.network.dec1.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0].shape[0]))
    batch = Batch(0.1 * torch.randn(4, 8000, generator=torch.Generator().manual_seed(0)), ["a"] * 4)
    kept = [round(trainer.train_step(batch)["keep_ratio"] * 200) for _ in range(4)]
    assert all(0 < arrived < sent for arrived, sent in zip(heard, kept, strict=True))
    assert 0.4 < sum(heard) / sum(kept) < 0.9
    lost = trainer._lost_steps(batch.audio)
    assert lost is not None
    assert len({tuple(own) for own in lost.tolist()}) == 4
    assert not lost[:, 0].any()
    assert torch.equal(lost, trainer._lost_steps(batch.audio))  # the same when a run is resumed
    second = Trainer(config, Fabric(accelerator="cpu", devices=1))
    second.step = trainer.step
    second.fabric = SimpleNamespace(global_rank=1)  # type: ignore[assignment]
    assert torch.equal(second._lost_steps(batch.audio[:2])[0], _third_crop(config, trainer.step))  # type: ignore[index]


def _third_crop(config: TrainConfig, step: int) -> torch.Tensor:
    """What one process draws for crop 2, the first of the second of two processes with two each."""
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    trainer.step = step
    lost = trainer._lost_steps(torch.zeros(4, 8000))
    assert lost is not None
    return lost[2]


def test_losses_need_a_decoder_that_fills_masked_steps(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"packet_loss\.share = 0\.2; allowed: 0 without upsampler mask"):
        support.tiny(tmp_path, "packet_loss.share=0.2", "model.upsampler=repeat")
    with pytest.raises(ConfigError, match=r"packet_loss\.share = 1\.0"):
        support.tiny(tmp_path, "packet_loss.share=1.0")


LIMITS = ("model.enc1_lookahead=1", "model.enc2_lookahead=0", "model.dec1_lookahead=0", "model.dec2_lookahead=0")


def test_steps_without_limits_train_as_a_model_that_has_none(tmp_path: Path) -> None:
    batch = Batch(0.1 * torch.randn(4, 8000, generator=torch.Generator().manual_seed(0)), ["a"] * 4)

    def losses(*overrides: str) -> list[float]:
        config = support.tiny(tmp_path, "discriminator.start=1000", *overrides)
        trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
        return [trainer.train_step(batch)["loss"] for _ in range(3)]

    limited, free = losses(*LIMITS, "packet_loss.share=0.6"), losses()
    assert losses(*LIMITS, "packet_loss.share=0.6", "lookahead_share=0") == free
    assert limited[0] != free[0]


def test_steps_take_turns_by_their_share_and_leave_the_limits_in_force(tmp_path: Path) -> None:
    config = support.tiny(tmp_path, *LIMITS, "lookahead_share=0.3")
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    seen = []
    for trainer.step in range(400):
        with trainer._lookahead() as limited:
            assert (trainer.network.enc1.lookahead, trainer.network.dec2.lookahead) == (
                (1, 0) if limited else (None,) * 2
            )
            seen.append(limited)
        assert trainer.network.enc1.lookahead == 1
    assert 0.2 < sum(seen) / len(seen) < 0.4
    with pytest.raises(ConfigError, match=r"lookahead_share = 1\.5; allowed: 0 \.\.\. 1"):
        support.tiny(tmp_path, "lookahead_share=1.5")


def test_discriminators_may_have_a_learning_rate_of_their_own(tmp_path: Path) -> None:
    config = support.tiny(tmp_path, "discriminator.lr=3e-4")
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    crops = Crops(InMemory(find_utterances(support.SAMPLES), 16_000), config.data, config.crop_samples, seed=0)
    trainer.train_step(crops[0])
    assert {group["lr"] for group in trainer.discriminator_optimizer.param_groups} == {3e-4}
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {config.optimizer.lr_at(0)}


def test_exploding_loss_stops_with_step_batch_and_checkpoint(tmp_path: Path) -> None:
    train(support.tiny(tmp_path, "max_steps=4"), tmp_path / "run")
    with pytest.raises(TrainingError, match=r"step 4: .*\.flac@\d+.*last good checkpoint: .*step-00000004\.ckpt"):
        train(support.tiny(tmp_path, "loss.limit=1"), tmp_path / "run", resume=True)
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path / "run")] == ["step-00000004.ckpt"]


def test_nan_leaves_the_weights_untouched(tmp_path: Path) -> None:
    trainer = Trainer(support.tiny(tmp_path), Fabric(accelerator="cpu", devices=1))
    trainer.train_step(Batch(0.1 * torch.randn(4, 8000), ["a"] * 4))
    before = [p.clone() for p in trainer.network.parameters()]
    with torch.no_grad():
        trainer.network.get_parameter("head.project.bias")[0] = math.nan
    with pytest.raises(TrainingError, match=r"step 1.*nan.*the-bad-item"):
        trainer.train_step(Batch(0.1 * torch.randn(4, 8000), ["the-bad-item"] * 4))
    changed = [
        n for (n, p), old in zip(trainer.network.named_parameters(), before, strict=True) if not torch.equal(p, old)
    ]
    assert changed == ["head.project.bias"]


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_run_with_a_checkpoint(
    tmp_path: Path, kind: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.train_step

    def step(self: Trainer, batch: Batch) -> dict[str, float]:
        if self.step == 1:
            os.kill(os.getpid(), kind)
        return original(self, batch)

    monkeypatch.setattr(Trainer, "train_step", step)
    last = train(support.tiny(tmp_path), tmp_path / "run")
    assert checkpoints.step_of(last) == 2


def test_a_second_signal_does_not_wait() -> None:
    with _stop_signals() as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped == [signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_time_is_up_after_max_minutes(tmp_path: Path) -> None:
    last = train(support.tiny(tmp_path, "max_steps=1000000"), tmp_path / "run", max_minutes=0.001)
    assert 1 <= checkpoints.step_of(last) < 1000
    DTMCodec.from_pretrained(tmp_path / "run" / "export")


def test_max_minutes_are_for_checkpoint_export_statistics_and_scores_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding is made slow: all statistics would take 8 s."""
    for number in range(40):
        (tmp_path / f"{number}.flac").symlink_to(support.SAMPLES / "amiable.flac")
    original = DTMCodec.encode

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.2)
        return original(*arguments, **options)

    monkeypatch.setattr(DTMCodec, "encode", slow)
    options = ["max_steps=1000000", f"data.train={tmp_path}", f"data.dev={tmp_path}", "dev_utterances=4"]
    config = support.tiny(tmp_path, *options, "dev_metrics=[mel]")
    started = time.monotonic()
    last = train(config, tmp_path / "run", max_minutes=0.4)
    assert time.monotonic() - started < 24
    assert checkpoints.step_of(last) > 1
    assert DTMCodec.from_pretrained(tmp_path / "run" / "export").token_model is not None
    assert "dev/mel" in support.curve(tmp_path / "run")[-1]


def test_a_folder_is_trained_in_by_one_run_at_a_time(tmp_path: Path) -> None:
    with folder_in_use(tmp_path / "run"), pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()} "):
        train(support.tiny(tmp_path), tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    newest = tmp_path / "run" / "step-00000012.ckpt"
    newest.write_bytes(newest.read_bytes()[:-2000])
    train(support.tiny(tmp_path), tmp_path / "run", resume=True)
    assert support.curve(tmp_path / "run") == support.curve(whole)
    ours, theirs = (checkpoints.load(folder / newest.name) for folder in (tmp_path / "run", whole))
    assert all(torch.equal(ours["codec"][name], theirs["codec"][name]) for name in theirs["codec"])


def test_a_run_killed_between_checkpoint_and_scores_gets_them_when_resumed(tmp_path: Path) -> None:
    options = [f"data.dev={support.SAMPLES}", "dev_utterances=1", "dev_metrics=[mel]", "dev_every=2", "max_steps=4"]
    config = support.tiny(tmp_path, *options)
    train(config, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    complete = support.curve(tmp_path / "run")
    lines = metrics.read_text().splitlines(keepends=True)
    assert "dev/mel" in lines[-1]
    metrics.write_text("".join(lines[:-1]))
    train(config, tmp_path / "run", resume=True)
    assert support.curve(tmp_path / "run") == complete


def test_scores_are_the_sign_that_samples_are_there_and_the_plot_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [f"data.dev={support.SAMPLES}", "dev_utterances=1", "dev_metrics=[mel]", "dev_every=2", "max_steps=2"]
    config, run = support.tiny(tmp_path, *options), tmp_path / "run"
    with monkeypatch.context() as killed:
        killed.setattr(training_run.dev, "write_samples", _killed)
        with pytest.raises(KeyboardInterrupt):
            train(config, run)
    assert not any("dev/mel" in line for line in support.curve(run))
    train(config, run, resume=True)
    assert list((run / "samples").rglob("*.flac"))
    (run / "losses.png").unlink()
    train(config, run, resume=True)
    assert (run / "losses.png").exists()


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("workers", [1, 4])
def test_readers_that_fail_end_the_run_with_one_line(tmp_path: Path, workers: int) -> None:
    """They used to be waited for, without end."""
    manifest = tmp_path / "set.jsonl"
    manifest.write_text("".join(f'{{"audio_filepath": "{n}.flac", "duration": 3}}\n' for n in range(200)))
    arguments = ["--data", str(manifest), "data.ram_gigabytes=0", f"data.workers={workers}"]
    run = support.command(tmp_path, tmp_path / "run", *arguments)
    done = subprocess.run(run, env=support.environment(), capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("dtm-codec: 100 recordings in a row cannot be read, such as: cannot read ")
    assert "Traceback" not in done.stderr


def test_a_reader_that_is_killed_ends_the_run_with_one_line(tmp_path: Path) -> None:
    config = support.tiny(tmp_path, "data.ram_gigabytes=0", "data.workers=1", "max_steps=1000000")
    stream = batches(
        str(support.SAMPLES), config.data, sample_rate=16_000, crop_samples=8000, seed=0, step=0, rank=0, world=1
    )
    before = set(multiprocessing.active_children())
    next(stream)
    (reader,) = set(multiprocessing.active_children()) - before
    reader.kill()
    with pytest.raises(DataError, match="a process that reads training data died"):
        deque(islice(stream, 100))


def test_a_run_killed_before_its_export_gets_it_when_resumed(tmp_path: Path) -> None:
    config = support.tiny(tmp_path, "max_steps=2", f"data.dev={support.SAMPLES}", "dev_utterances=1")
    train(config, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "export")
    for _ in range(2):
        train(config, tmp_path / "run", resume=True)
        assert (tmp_path / "run" / "export" / "model.safetensors").exists()
    assert len([line for line in support.curve(tmp_path / "run") if "dev/pesq" in line]) == 2  # not a third time


def test_discriminators_may_be_configured_anew_on_the_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(support.tiny(tmp_path, "max_steps=4"), tmp_path / "run")
    train(support.tiny(tmp_path, "max_steps=6", "discriminator.stft_channels=8"), tmp_path / "run", resume=True)
    assert "discriminators begin anew" in caplog.text
    assert "adversarial" in support.curve(tmp_path / "run")[-1]


def test_the_optimizer_may_be_configured_anew_on_the_way(tmp_path: Path, whole: Path) -> None:
    config = support.tiny(tmp_path, "optimizer.betas=[0.5, 0.6]", "optimizer.weight_decay=0.3")
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1), resumed=True)
    trainer.load_state(checkpoints.load(whole))
    groups = trainer.optimizer.param_groups
    assert [(group["betas"], group["weight_decay"]) for group in groups] == [((0.5, 0.6), 0.3), ((0.5, 0.6), 0.0)]
    assert trainer.optimizer.state_dict()["state"], "the moments are those of the checkpoint"


def test_a_fine_tuning_run_is_resumed_without_what_it_started_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(support.tiny(tmp_path, "max_steps=2"), tmp_path / "base")
    tuned = [f"init_from={tmp_path / 'base'}", "model.selector.name=threshold"]
    with caplog.at_level(logging.INFO):
        train(support.tiny(tmp_path, "max_steps=1", *tuned), tmp_path / "run")
    assert "tau" in caplog.text  # what is new is listed
    shutil.rmtree(tmp_path / "base")
    train(support.tiny(tmp_path, "max_steps=2", *tuned), tmp_path / "run", resume=True)


def test_a_run_is_not_overwritten_nor_mixed_with_another(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(TrainingError, match="--resume"):
        train(support.tiny(tmp_path), whole)
    with pytest.raises(checkpoints.CheckpointError, match="another model"):
        train(support.tiny(tmp_path, "model.dim=64"), whole, resume=True)
    with pytest.raises(checkpoints.CheckpointError, match="seed"):
        train(support.tiny(tmp_path, "seed=9"), whole, resume=True)
    with pytest.raises(DataError, match="--data"):
        train(support.tiny(tmp_path, "data.train=null"), tmp_path / "new")


def test_dev_scores_samples_curves_and_export(tmp_path: Path) -> None:
    overrides = [f"data.dev={support.SAMPLES}", "dev_utterances=1", "max_steps=2", "loggers=[tensorboard]"]
    train(support.tiny(tmp_path, *overrides), tmp_path / "run")
    scores = support.curve(tmp_path / "run")[-1]
    assert {"dev/pesq", "dev/stoi", "dev/mel", "dev/keep_ratio_quiet", "dev/keep_ratio_loud"} <= set(scores)
    assert sum(scores[f"dev/spans_{n}"] for n in ("1", "2", "3", "4", "5+")) == pytest.approx(1)
    written = {str(p.relative_to(tmp_path / "run")) for p in (tmp_path / "run").rglob("*") if p.is_file()}
    expected = {"losses.png", "run.json", "samples/step-00000002/0-decoded.flac", "export/model.safetensors"}
    assert expected <= written
    assert any(name.startswith("tensorboard/") for name in written)
    exported = DTMCodec.from_pretrained(tmp_path / "run" / "export")
    average = checkpoints.load(tmp_path / "run" / "step-00000002.ckpt")["average"]
    assert torch.equal(exported.network.state_dict()["head.project.weight"], average["head.project.weight"])


@pytest.fixture(autouse=True)
def _no_leftover_handlers() -> Iterator[Any]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is before
