"""The network: Eq. 1 of the paper as code.

    x -STFT-> S -Enc1-> z1 -DTM-> z1_kept -Enc2-> z2 -VQ-> z2_hat -Dec1-> h -Up-> z1_hat -Dec2-> spec_hat -iSTFT-> x_hat

`forward` is the whole chain, for training on crops of equal length. `coding/chain.py` has the same chain in pieces,
for utterances of any lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .config import SELECTOR_MELS, STACKS, CodecConfig, Stack
from .models.weights import Array, shapes
from .nn.heads import Head, SpectralHead
from .nn.quantizers import build_quantizer
from .nn.resampling import build_downsampler, build_upsampler
from .nn.source_filter import SourceFilterHead
from .nn.spectral import FrontEnd, frame_signal, mel_filterbank
from .nn.timeline import Timeline
from .nn.transformer import TransformerStack
from .rate.calibration import calibrate
from .selectors import build

HEADS: dict[str, type[Head]] = {"istft": SpectralHead, "source-filter": SourceFilterHead}


class CodecOutput(NamedTuple):
    """What training needs of a forward pass. A flat tuple, because Fabric and DDP look for tensors in those."""

    audio: Tensor
    """(B, T) reconstruction"""
    mask: Tensor
    """(B, N) bool, True = kept"""
    codes: Tensor
    """(sum K,) of all kept steps"""
    latents: Tensor
    """(sum K, d) what was quantized, detached"""
    quantizer_loss: Tensor
    pitch_logits: Tensor | None
    """(B N, bins) of a head that predicts pitch"""


class Network(nn.Module):
    """Everything that is learned, and the chain through it."""

    tau: Tensor
    """What the selector is steered to; NaN until training has found it."""
    mel_filters: Tensor

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.selector = build(config.selector)
        self.front_end = FrontEnd(config)
        self.enc1 = self._stack("enc1")
        self.down = build_downsampler(config.downsampler, config.dim, config.stride)
        self.enc2 = self._stack("enc2")
        self.quantizer = build_quantizer(config.quantizer, config.dim)
        self.dec1 = self._stack("dec1")
        self.up = build_upsampler(config.upsampler, config.dim, config.stride)
        self.dec2 = self._stack("dec2")
        self.head = HEADS[config.head](config)
        self.apply(_initialize)
        # what leaves the bottleneck has the scale of what enters it, not that of a residual branch
        nn.init.normal_(self.quantizer.project_out.weight)
        self.head.initialize()
        tau = {"stride": float(config.stride), "random": 1 / config.keep_ratio}.get(config.selector.name, torch.nan)
        self.register_buffer("tau", torch.tensor(tau, dtype=torch.float64))
        filters = mel_filterbank(config.sample_rate, config.n_fft, SELECTOR_MELS).T.contiguous()
        self.register_buffer("mel_filters", filters, persistent=False)

    def _stack(self, name: Stack) -> TransformerStack:
        config = self.config
        return TransformerStack(
            config.layers(name),
            config.dim,
            config.heads,
            config.mlp_hidden,
            window=config.window,
            lookahead=config.lookahead(name),
            norm_eps=config.norm_eps,
            rope_base=config.rope_base,
            layer_scale=config.layer_scale,
        )

    def limit_lookahead(self, limited: bool) -> None:
        """Let attention see as far ahead as the configuration allows, or all of its window."""
        for name in STACKS:
            getattr(self, name).lookahead = self.config.lookahead(name) if limited else None

    def forward(self, audio: Tensor, pitch: Tensor | None = None, lost: Tensor | None = None) -> CodecOutput:
        """The whole chain on crops of equal length. audio: (B, T), T a multiple of the hop; pitch: (B, N) hertz that a
        source-filter head shall follow instead of its own; lost: (B, N) bool, steps whose tokens do not arrive."""
        z1, features, timeline = self._stage1_of_crops(audio)
        rows, lengths = features.cpu().numpy(), list(timeline.lengths)
        mask = torch.from_numpy(self.selector.select(rows, lengths, float(self.tau), self.training))  # (B N,)
        mask = mask.to(audio.device)
        kept = self.kept(timeline, mask)
        z2 = self.enc2(self.down(z1, mask), kept)
        quantized = self.quantizer(z2)
        values, arrived = quantized.values, mask
        if lost is not None:  # to the decoder, a lost token is a step that was never kept
            arrived = mask & ~lost.flatten()
            values, kept = values[arrived[mask]], self.kept(timeline, arrived)
        z1_hat = self.up(self.dec1(values, kept), arrived)
        y = self.dec2(z1_hat, timeline)
        frames, pitch_logits, _ = self.head(y, timeline.positions, None if pitch is None else pitch.flatten())
        return CodecOutput(
            audio=self.head.synthesize(frames.view(audio.shape[0], -1, self.config.n_fft)),
            mask=mask.view(audio.shape[0], -1),
            codes=quantized.codes,
            latents=quantized.latents,
            quantizer_loss=quantized.loss,
            pitch_logits=pitch_logits,
        )

    @torch.no_grad()
    def calibrated_tau(self, audio: Tensor) -> float:
        """The tau at which these crops, taken together, have the configured keep ratio. audio: (B, T)"""
        _, features, timeline = self._stage1_of_crops(audio)
        utterances = torch.split(features.cpu(), list(timeline.lengths))
        statistics = [self.selector.statistics(own.numpy()) for own in utterances]
        return calibrate(self.selector, statistics, round(self.config.keep_ratio * sum(timeline.lengths))).tau

    def _stage1_of_crops(self, audio: Tensor) -> tuple[Tensor, Tensor, Timeline]:
        frames = frame_signal(audio, self.config.n_fft, self.config.hop_length)  # (B, N, n_fft)
        timeline = Timeline.consecutive((frames.shape[1],) * frames.shape[0], audio.device)
        frames = frames.flatten(0, 1)
        spectrum = self.front_end.spectrum(frames)
        z1 = self.enc1(self.front_end(spectrum, frames), timeline)
        return z1, self.selector_features(z1, spectrum), timeline

    def selector_features(self, z1: Tensor, spectrum: Tensor) -> Tensor:
        """What the model's selector looks at. z1: (S, D), spectrum: (S, bins) complex -> (S, F)"""
        return z1.detach().float() if self.config.selector.features == "z1" else self.log_mel(spectrum)

    def log_mel(self, spectrum: Tensor) -> Tensor:
        """(S, bins) complex -> (S, bands)"""
        with torch.autocast(spectrum.device.type, enabled=False):
            return torch.log(spectrum.abs() @ self.mel_filters + 1e-5)

    def kept(self, timeline: Timeline, mask: Tensor) -> Timeline:
        """Where Stage 2 sees the kept steps: at their times, or at their ranks."""
        kept = timeline.kept(mask)
        return Timeline.consecutive(kept.lengths, mask.device) if self.config.stage2_positions == "rank" else kept


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def weights_of(network: Network) -> dict[str, Array]:
    """What inference needs, as `weights.shapes` names it."""
    state = network.state_dict()
    return {name: state[name].cpu().numpy() for name in shapes(network.config)}


@torch.no_grad()
def fill(network: Network, weights: Mapping[str, Array]) -> None:
    """Copy the weights of a folder, which fit its configuration, into a network of that configuration."""
    state = network.state_dict()
    for name in shapes(network.config):
        state[name].copy_(torch.tensor(weights[name]))
