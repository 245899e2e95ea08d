"""One step of training (paper Sections 3.1.6 and 4.1). Fabric has the devices, processes and precision.

A step is a pure function of the state, the configuration and the step's number: data order and every random draw are
computed from (seed, step). So a run that is killed and resumed computes what it would have computed, and
several processes compute what one would.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..config import CodecConfig
from ..errors import ConfigError, DTMCodecError
from ..live.losses import draw_losses
from ..network import CodecOutput, Network
from ..nn.mel_distance import MultiScaleMelDistance
from ..nn.pitch_tracking import PitchTrack, PitchTracker, pitch_loss
from ..nn.quantizers import VectorQuantizer
from ..nn.transformer import Block
from ..rate.controller import TauController
from ..selectors.random import Random
from . import losses
from .checkpoints import CheckpointError
from .config import TrainConfig
from .data import Batch
from .discriminators import Discriminators
from .fine_tuning import initialize_from
from .fsdp import split, split_optimizer, whole, whole_parameter
from .listeners import build_listeners
from .optim import Average, build_optimizer, set_lr

log = logging.getLogger(__name__)

USAGE_STEPS = 100
"""Code usage and perplexity are counted over this many steps."""


class TrainingError(DTMCodecError):
    """A run that cannot go on."""


def compile_blocks(network: Network) -> None:
    """Fuse what is between the matrix products, block by block: one graph serves all layers and token counts."""
    for module in network.modules():
        if isinstance(module, Block):
            module.compile(dynamic=True)


def freeze_others(network: Network, names: Sequence[str]) -> None:
    """Let only weights learn whose names begin with one of these; if there are none, all do."""
    weights = dict(network.named_parameters())
    for name in names:
        if not any(weight.startswith(name) for weight in weights):
            known = ", ".join(dict.fromkeys(weight.partition(".")[0] for weight in weights))
            raise ConfigError(
                f"train_only = {name!r}, which no weight's name begins with; allowed: {known} and parts of them"
            )
    for weight, values in weights.items():
        values.requires_grad_(not names or weight.startswith(tuple(names)))


class Trainer:
    """The state of a run and what one step does to it."""

    def __init__(self, config: TrainConfig, fabric: Any, *, resumed: bool = False) -> None:
        """`resumed`: a checkpoint will be loaded, so what a fine-tuning run started from is not needed again."""
        self.config = config
        self.fabric = fabric
        self.step = 0
        torch.manual_seed(config.seed)
        self.network = Network(config.model)
        self.discriminators = Discriminators(config.discriminator)
        if config.init_from is not None and not resumed:
            for line in initialize_from(config.init_from, self.network, self.discriminators):
                log.info(line)
        freeze_others(self.network, config.train_only)
        if config.compile:
            compile_blocks(self.network)
        # The originals stay at hand: they have the names that checkpoints use. Checkpoints call the network "codec".
        self._generator = fabric.setup_module(self.network)
        self._discriminators = fabric.setup_module(self.discriminators)
        # Setting a module up may split its parameters, so optimizers and average come after.
        self.optimizer = fabric.setup_optimizers(build_optimizer(self.network, config.optimizer))
        self.discriminator_optimizer = fabric.setup_optimizers(build_optimizer(self.discriminators, config.optimizer))
        self.average = Average(self.network, config.ema_decay)
        self.mel_loss = MultiScaleMelDistance(config.model.sample_rate, config.loss.mel_windows).to(fabric.device)
        self.spectral_loss = losses.SpectralLoss().to(fabric.device) if config.loss.spectral else None
        self.listeners = build_listeners(config.loss, config.model.sample_rate).to(fabric.device)
        follows = config.model.head == "source-filter"
        self.pitch_tracker = PitchTracker(config.model).to(fabric.device) if follows else None
        self.controller: TauController | None = None
        self._heard: dict[str, float] = {}
        self._usage: deque[Tensor] = deque(maxlen=USAGE_STEPS)

    def train_step(self, batch: Batch) -> dict[str, float]:
        """One generator step, and one of the discriminators if it is their turn; returns metrics."""
        config, fabric = self.config, self.fabric
        torch.manual_seed(_derived_seed(config.seed, self.step, 0))
        lr = config.optimizer.lr_at(self.step)
        set_lr(self.optimizer, lr)
        set_lr(self.discriminator_optimizer, config.discriminator.lr or lr)
        audio = batch.audio.to(fabric.device)
        if self.config.model.is_steered and self.controller is None:
            self._start_controller(audio)

        pitch = None if self.pitch_tracker is None else self.pitch_tracker(audio)
        self.network.quantizer.bypassed = self.step < config.quantize_from
        if isinstance(self.network.selector, Random):
            self.network.selector.passed_over = fabric.global_rank * audio.numel() // config.model.hop_length
        if config.discriminator.learns_alone(self.step):
            return self._warm_up_discriminators(audio)
        with self._jittered_tau(), self._lookahead() as limited:
            hertz = None if pitch is None else pitch.hertz
            lost = self._lost_steps(audio) if limited else None
            output: CodecOutput = self._generator(audio, hertz, lost)
        codes, latents = self._gather(output.codes), self._gather(output.latents)
        # Each process's quantizer loss is a mean over its own tokens: weigh it by their share of all.
        share = output.codes.numel() * fabric.world_size / codes.numel()
        terms = {"quantizer": output.quantizer_loss * share, **self._distances(output, audio, pitch)}
        numbers = {}
        if config.discriminator.judges(self.step):
            real, fake = self._judged_stretch(audio), self._judged_stretch(output.audio)
            numbers["discriminator"] = self._discriminator_step(real, fake.detach())
            terms |= self._adversarial_terms(real, fake)
        loss = torch.stack([term * getattr(config.loss, name) for name, term in terms.items()]).sum()
        self.optimizer.zero_grad()
        fabric.backward(loss)
        norm = fabric.clip_gradients(
            self._generator, self.optimizer, max_norm=config.optimizer.clip, error_if_nonfinite=False
        )
        numbers |= {"loss": loss.detach(), **{name: term.detach() for name, term in terms.items()}}
        metrics = self._mean_over_processes(numbers) | {"gradient_norm": float(whole(norm)), "lr": lr}
        self._check(metrics, batch)
        self.optimizer.step()

        self._steer(codes.numel(), output.mask.numel() * fabric.world_size)
        metrics |= self._watch_codes(codes, latents)
        self.step += 1
        self.average.update(self.network, self.step)
        frames = output.mask.numel() * fabric.world_size
        # Listeners take turns: without their last values, one of them might never be in a step that is logged.
        self._heard |= {name: metrics[name] for name in self.listeners if name in metrics}
        return self._heard | metrics | {"keep_ratio": codes.numel() / frames, "tau": float(self.network.tau)}

    def _distances(self, output: CodecOutput, audio: Tensor, pitch: PitchTrack | None) -> dict[str, Tensor]:
        """How far the output is from what was spoken, by the names of `LossConfig`."""
        distances = {"mel": self.mel_loss(output.audio, audio)}
        if pitch is not None and output.pitch_logits is not None:
            distances["pitch"] = pitch_loss(output.pitch_logits, pitch)
        if self.spectral_loss is not None:
            distances["spectral"] = self.spectral_loss(output.audio, audio)
        for turn, (name, listener) in enumerate(self.listeners.items()):
            if (self.step + turn) % self.config.loss.listen_every == 0:
                with self.fabric.autocast():
                    distances[name] = listener(output.audio, audio)
        return distances

    def _warm_up_discriminators(self, audio: Tensor) -> dict[str, float]:
        """A step in which the generator stays as it is: discriminators that know nothing would only disturb it."""
        with torch.no_grad():
            decoded = self._generator(audio).audio
        loss = self._discriminator_step(self._judged_stretch(audio), self._judged_stretch(decoded))
        self.step += 1
        return self._mean_over_processes({"discriminator": loss})

    def _discriminator_step(self, real: Tensor, fake: Tensor) -> Tensor:
        """Teach the discriminators on detached output. real, fake: (B, T)."""
        judgement = self._discriminators(torch.cat([real, fake]))
        halves = [score.chunk(2) for score in judgement.scores]
        loss = losses.discriminator_loss([half[0] for half in halves], [half[1] for half in halves])
        self.discriminator_optimizer.zero_grad()
        self.fabric.backward(loss)
        self.fabric.clip_gradients(
            self._discriminators,
            self.discriminator_optimizer,
            max_norm=self.config.optimizer.clip,
            error_if_nonfinite=False,
        )
        self.discriminator_optimizer.step()
        return loss.detach()

    def _adversarial_terms(self, real: Tensor, fake: Tensor) -> dict[str, Tensor]:
        """What the generator learns from the discriminators. real, fake: (B, T)."""
        self.discriminators.requires_grad_(False)  # gradients pass through them, none stay
        with self.fabric.autocast():
            judged = self.discriminators(fake)
            with torch.no_grad():
                reference = self.discriminators(real)
        self.discriminators.requires_grad_(True)
        return {
            "adversarial": losses.adversarial_loss(judged.scores),
            "feature_matching": losses.feature_matching_loss(reference.features, judged.features),
        }

    def _judged_stretch(self, audio: Tensor) -> Tensor:
        """The part of every crop that the discriminators see in this step. (B, T) -> (B, T')"""
        seconds = self.config.discriminator.crop_seconds
        if seconds is None:
            return audio
        length = round(seconds * self.config.model.sample_rate)
        draw = np.random.default_rng((self.config.seed, 2, self.step))
        start = int(draw.integers(audio.shape[-1] - length + 1))
        return audio[:, start : start + length]

    def _lost_steps(self, audio: Tensor) -> Tensor | None:
        """Steps of this process's crops whose tokens do not arrive in this step of training. (B, T) -> (B, N)"""
        options, model = self.config.packet_loss, self.config.model
        if options.share == 0:
            return None
        crops, steps = audio.shape[0], audio.shape[-1] // model.hop_length
        longest = max(1, round(options.burst_ms / 1000 * model.frame_rate))
        first = self.fabric.global_rank * crops  # crops draw by their place in the batch of all processes
        lost = np.zeros((crops, steps), bool)
        for i in range(crops):
            draw = np.random.default_rng((self.config.seed, 4, self.step, first + i))
            lost[i] = draw_losses(steps, draw.uniform(0, options.share), longest, draw)
        lost[:, 0] = False  # some token is always there
        return torch.from_numpy(lost).to(audio.device)

    def _start_controller(self, audio: Tensor) -> None:
        """Begin at the tau that gives the first batch the keep ratio; a tau of earlier training is kept."""
        if torch.isnan(self.network.tau):
            everything = self.fabric.all_gather(audio).flatten(0, -2)
            self.network.tau.fill_(self.network.calibrated_tau(everything))
        options = self.config.controller
        self.controller = TauController(
            self.config.model.keep_ratio,
            float(self.network.tau),
            momentum=options.momentum,
            eta0=options.eta0,
            decay_steps=options.decay_steps,
            every=options.every,
        )

    @contextmanager
    def _jittered_tau(self) -> Iterator[None]:
        """Run a step at a random rate around the steered one, near ones more often; the same on all processes."""
        jitter = self.config.controller.jitter
        if self.controller is None or jitter == 0:
            yield
            return
        draw = np.random.default_rng((self.config.seed, 3, self.step)).triangular(-jitter, 0, jitter)
        self.network.tau.fill_(self.controller.tau * math.exp(draw))
        yield
        self.network.tau.fill_(self.controller.tau)

    @contextmanager
    def _lookahead(self) -> Iterator[bool]:
        """Whether this step keeps the limits of look-ahead, as its share has it; the same on all processes."""
        limited = np.random.default_rng((self.config.seed, 5, self.step)).random() < self.config.lookahead_share
        self.network.limit_lookahead(limited)
        yield limited
        self.network.limit_lookahead(True)

    def _steer(self, kept: int, frames: int) -> None:
        if self.controller is not None:
            self.network.tau.fill_(self.controller.update(kept, frames))

    def _watch_codes(self, codes: Tensor, latents: Tensor) -> dict[str, float]:
        """Revive codes that nobody uses; usage and perplexity over the last steps. codes: (sum K,) of all processes."""
        size = self.config.model.quantizer.codebook_size
        counts = torch.bincount(codes, minlength=size)
        quantizer = self.network.quantizer
        if self.config.revive_after and isinstance(quantizer, VectorQuantizer) and quantizer.codebook.requires_grad:
            seed = _derived_seed(self.config.seed, self.step, 0)
            with whole_parameter(quantizer, "codebook"):
                quantizer.revive(counts, latents, idle_steps=self.config.revive_after, seed=seed)
        self._usage.append(counts)
        if (self.step + 1) % self.config.log_every:
            return {}
        recent = torch.stack(tuple(self._usage)).sum(0)
        probabilities = recent[recent > 0] / recent.sum()
        perplexity = torch.exp(-(probabilities * probabilities.log()).sum())
        return {"code_usage": probabilities.numel() / size, "perplexity": float(perplexity)}

    def _gather(self, local: Tensor) -> Tensor:
        """Rows of all processes in the order of one. local: (M, ...) with M differing -> (sum M, ...)"""
        if self.fabric.world_size == 1:
            return local
        rows = self.fabric.all_gather(torch.tensor(local.shape[0], device=local.device)).tolist()
        padded = local.new_zeros(max(rows), *local.shape[1:])
        padded[: local.shape[0]] = local
        return torch.cat([part[:n] for part, n in zip(self.fabric.all_gather(padded), rows, strict=True)])

    def _mean_over_processes(self, numbers: dict[str, Tensor]) -> dict[str, float]:
        values = self.fabric.all_reduce(torch.stack([value.float() for value in numbers.values()]), reduce_op="mean")
        return dict(zip(numbers, values.tolist(), strict=True))

    def _check(self, metrics: dict[str, float], batch: Batch) -> None:
        """Every process sees the same numbers, so all of them stop."""
        limit = self.config.loss.limit
        if math.isfinite(metrics["gradient_norm"]) and abs(metrics["loss"]) <= limit:
            return
        shown = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        raise TrainingError(
            f"step {self.step}: the loss is not finite or above {limit:g} ({shown}); batch: {batch.items}"
        )

    def state(self) -> dict[str, Any]:
        """All that a checkpoint holds, for the first process; all take part, for weights may be split over them.

        Data position and random draws follow from seed and step.
        """
        state = {
            "step": self.step,
            "config": self.config.to_dict(),
            "codec": self.network.state_dict(),
            "average": self.average.weights,
            "discriminators": self.discriminators.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "discriminator_optimizer": self.discriminator_optimizer.state_dict(),
            "controller": None if self.controller is None else self.controller.state_dict(),
        }
        return cast(dict[str, Any], whole(state, keep=self.fabric.is_global_zero))

    def averaged_weights(self) -> dict[str, Tensor]:
        """The moving average, for the first process; all take part."""
        return cast(dict[str, Tensor], whole(self.average.weights, keep=self.fabric.is_global_zero))

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint of the same model; everything else may be configured anew."""
        if CodecConfig.from_dict(state["config"]["model"]) != self.config.model:
            raise CheckpointError("the run to resume trains another model; fine-tune it with init_from")
        if state["config"]["seed"] != self.config.seed:
            raise CheckpointError(f"seed = {self.config.seed}; the run has {state['config']['seed']}")
        parts: list[tuple[Any, Any, str, str]] = [
            (self.network, self.optimizer, "codec", "optimizer"),
            (self.discriminators, self.discriminator_optimizer, "discriminators", "discriminator_optimizer"),
        ]
        own = self.discriminators.state_dict()
        if {k: t.shape for k, t in own.items()} != {k: t.shape for k, t in state["discriminators"].items()}:
            log.warning("the discriminators begin anew: those of the checkpoint are configured differently")
            parts.pop()
        for module, optimizer, module_name, optimizer_name in parts:
            module.load_state_dict(split(state[module_name], module.state_dict()))
            settings = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
            optimizer.load_state_dict(split_optimizer(state[optimizer_name], optimizer))
            for group, configured in zip(optimizer.param_groups, settings, strict=True):
                group.update(configured)  # betas and weight decay are this run's
        self.average.load(split(state["average"], self.average.weights))
        self.step = state["step"]
        if self.config.model.is_steered and state["controller"] is not None:
            self._start_controller(torch.empty(0))
            assert self.controller is not None
            self.controller.load_state_dict(state["controller"])


def _derived_seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
