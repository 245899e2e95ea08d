"""Sub-discriminators see what their names say and pass gradients to the generator."""

from __future__ import annotations

from pathlib import Path

import torch
import training_support as support
from lightning_fabric import Fabric
from torch import nn
from torch.nn import functional as F

from dtm_codec.speech.audio import read_audio, sample_path
from dtm_codec.training.config import DiscriminatorConfig
from dtm_codec.training.data import Crops, InMemory, find_utterances
from dtm_codec.training.discriminators import Discriminators, PeriodDiscriminator, STFTDiscriminator
from dtm_codec.training.trainer import Trainer

SMALL = DiscriminatorConfig(periods=(2, 3), period_channels=(4, 8, 8), stft_sizes=(128, 256), stft_channels=4)


def test_one_score_and_all_hidden_layers_per_member() -> None:
    judgement = Discriminators(SMALL)(torch.randn(2, 4001))
    assert len(judgement.scores) == len(judgement.features) == 4
    assert [len(hidden) for hidden in judgement.features] == [3, 3, 5, 5]


def test_speech_does_not_fade_on_its_way_through() -> None:
    """What fades is learned from slowly: the discriminators would not tell real from decoded for thousands of steps."""
    speech = torch.from_numpy(read_audio(sample_path(), 16_000)[0][None, :32_000])
    torch.manual_seed(0)
    for hidden in Discriminators(DiscriminatorConfig(stft_power=0.3, stft_channels=16))(speech).features:
        assert all(0.1 < layer.square().mean().sqrt() < 10 for layer in hidden)


def test_power_brings_quiet_and_loud_together() -> None:
    member = STFTDiscriminator(256, 8, power=0.5)
    loud = torch.randn(1, 4000)
    with torch.no_grad():
        levels = [member(gain * loud)[1][0].square().mean().sqrt() for gain in (1.0, 0.01)]
    assert 5 < levels[0] / levels[1] < 20  # 100 times quieter: about 10 times less


def test_gradients_reach_audio_and_every_parameter() -> None:
    ensemble = Discriminators(SMALL)
    audio = torch.randn(1, 4000, requires_grad=True)
    sum(score.square().mean() for score in ensemble(audio).scores).backward()
    assert audio.grad is not None
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in ensemble.parameters())


def test_period_discriminator_is_the_two_dimensional_one() -> None:
    """HiFi-GAN folds audio into an image (T / p, p) and uses kernels (5, 1)."""
    member = PeriodDiscriminator(3, (4, 8))
    audio = torch.randn(2, 300)
    score, _ = member(audio)
    image = audio.reshape(2, 1, 100, 3)
    for layer, stride in zip(member.convolutions, (3, 1), strict=True):
        assert isinstance(layer, nn.Conv1d)
        image = F.leaky_relu(F.conv2d(image, layer.weight[..., None], layer.bias, (stride, 1), (2, 0)), 0.1)
    expected = F.conv2d(image, member.score.weight[..., None], member.score.bias, 1, (1, 0))  # (2, 1, n, 3)
    torch.testing.assert_close(score.reshape(2, 3, -1), expected[:, 0].transpose(1, 2), rtol=1e-4, atol=1e-5)


def test_paper_ensemble_has_ten_members() -> None:
    with torch.device("meta"):
        assert len(Discriminators(DiscriminatorConfig()).members) == 10


def test_the_generator_waits_while_discriminators_warm_up(tmp_path: Path) -> None:
    config = support.tiny(tmp_path, "discriminator.start=0", "discriminator.warmup_steps=2")
    trainer = Trainer(config, Fabric(accelerator="cpu", devices=1))
    recordings = InMemory(find_utterances(support.SAMPLES), config.model.sample_rate)
    crops = Crops(recordings, config.data, config.crop_samples, config.seed)

    def weights(module: torch.nn.Module) -> torch.Tensor:
        return torch.cat([p.detach().flatten().clone() for p in module.parameters()])

    generator, critics = weights(trainer.network), weights(trainer.discriminators)
    for step in range(2):
        assert set(trainer.train_step(crops[step])) == {"discriminator"}
    assert torch.equal(weights(trainer.network), generator)
    assert not torch.equal(weights(trainer.discriminators), critics)
    trainer.train_step(crops[2])
    assert not torch.equal(weights(trainer.network), generator)
