"""The network: Eq. 1 of the paper as code.

    x -STFT-> S -Enc1-> z1 -DTM-> z1_kept -Enc2-> z2 -VQ-> z2_hat -Dec1-> h -Up-> z1_hat -Dec2-> spec_hat -iSTFT-> x_hat

`forward` is the whole chain, for training on crops of equal length. Its first and last third are also here for
utterances of any lengths, packed end to end, in pieces that bound the memory: attention has a finite reach, so a piece
computed with its reach around it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from .config import CodecConfig, SelectorConfig
from .nn.packed import Packed
from .nn.pitch import Pulses, predicted_pitch
from .nn.quantizers import FiniteScalarQuantizer, QuantizerOutput, VectorQuantizer, build_quantizer
from .nn.resampling import build_downsampler, build_upsampler, segment_of
from .nn.source_filter import SourceFilterHead
from .nn.spectral import FrontEnd, SpectralHead, frame_signal, mel_filterbank, overlap_add
from .nn.transformer import TransformerStack
from .rate.calibration import calibrate
from .selectors import build

SELECTOR_MELS = 40
"""Bands of the log-mel spectrogram that a selector may look at instead of z1."""


@dataclass(frozen=True)
class CodecOutput:
    """What training needs of a forward pass."""

    audio: Tensor
    """(B, T) reconstruction"""
    mask: Tensor
    """(B, N) bool, True = kept"""
    quantizer: QuantizerOutput
    """Codes of all kept steps, (sum K,), and the quantizer's loss."""
    pitch_logits: Tensor | None
    """(B N, bins) of a source-filter head"""


class Network(nn.Module):
    """Everything that is learned, and the chain through it."""

    piece: int = 8192
    """Steps computed at a time when utterances are coded: 82 s of Stage 1 at 100 Hz. Best a multiple of the window, so
    that pieces share its blocks."""

    tau: Tensor
    """What the selector is steered to; NaN until training has found it."""
    mel_filters: Tensor

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.selector = build(config.selector)
        self.front_end = FrontEnd(config)
        self.enc1 = self._stack(config.enc1_layers)
        self.down = build_downsampler(config.downsampler, config.dim, config.stride)
        self.enc2 = self._stack(config.enc2_layers)
        self.quantizer = build_quantizer(config.quantizer, config.dim)
        self.dec1 = self._stack(config.dec1_layers)
        self.up = build_upsampler(config.upsampler, config.dim, config.stride)
        self.dec2 = self._stack(config.dec2_layers)
        self.head: SpectralHead | SourceFilterHead
        if config.head == "istft":
            self.head = SpectralHead(config.n_fft, config.hop_length, config.dim)
        else:
            self.head = SourceFilterHead(config.n_fft, config.hop_length, config.dim, config.sample_rate)
        self.apply(_initialize)
        tau = {"stride": float(config.stride), "random": 1 / config.keep_ratio}.get(config.selector.name, torch.nan)
        self.register_buffer("tau", torch.tensor(tau, dtype=torch.float64))
        filters = mel_filterbank(config.sample_rate, config.n_fft, SELECTOR_MELS).T.contiguous()
        self.register_buffer("mel_filters", filters, persistent=False)

    def _stack(self, layers: int) -> TransformerStack:
        config = self.config
        return TransformerStack(
            layers,
            config.dim,
            config.heads,
            config.mlp_hidden,
            window=config.window,
            norm_eps=config.norm_eps,
            rope_base=config.rope_base,
            layer_scale=config.layer_scale,
        )

    def forward(self, audio: Tensor, pitch: Tensor | None = None) -> CodecOutput:
        """The whole chain on crops of equal length. audio: (B, T), T a multiple of the hop; pitch: (B, N) hertz that a
        source-filter head shall follow instead of its own."""
        z1, features, lengths = self._stage1_of_crops(audio)
        mask = self.selector.select(features, list(lengths), float(self.tau), self.training)  # (B N,)
        z2 = self.enc2(self._kept(z1.values, mask, lengths))
        quantized = self.quantizer(z2)
        h = self.dec1(self._kept_positions(mask, lengths).with_values(quantized.values))
        z1_hat = self.up(h, mask)
        y = self.dec2(z1.with_values(z1_hat))
        pitch_logits = None
        if isinstance(self.head, SourceFilterHead):
            pitch_logits = self.head.pitch_logits(y)
            hertz = predicted_pitch(pitch_logits) if pitch is None else pitch.flatten()
            frames = self.head(y, z1.positions, self.head.pulses(hertz, z1.positions))
        else:
            frames = self.head(y)
        frames = frames.view(audio.shape[0], -1, self.config.n_fft)  # (B, N, n_fft)
        return CodecOutput(self.head.synthesize(frames), mask.view(audio.shape[0], -1), quantized, pitch_logits)

    @torch.no_grad()
    def calibrated_tau(self, audio: Tensor) -> float:
        """The tau at which these crops, taken together, have the configured keep ratio. audio: (B, T)"""
        _, features, lengths = self._stage1_of_crops(audio)
        statistics = [self.selector.statistics(x) for x in torch.split(features, list(lengths))]
        return calibrate(self.selector, statistics, round(self.config.keep_ratio * sum(lengths))).tau

    def _stage1_of_crops(self, audio: Tensor) -> tuple[Packed, Tensor, tuple[int, ...]]:
        frames = frame_signal(audio, self.config.n_fft, self.config.hop_length)  # (B, N, n_fft)
        lengths = (frames.shape[1],) * frames.shape[0]
        frames = frames.flatten(0, 1)
        spectrum = self.front_end.spectrum(frames)
        packed = Packed.consecutive(self.front_end(spectrum, frames), lengths)
        z1 = self.enc1(packed)
        return packed.with_values(z1), self._selector_features(self.config.selector, z1, spectrum), lengths

    def _stage1(self, signals: list[Tensor], chosen: SelectorConfig) -> tuple[Tensor, Tensor]:
        """z1 and what the selector looks at, in pieces. -> (sum N, D), (sum N, D or bands)"""
        hop, reach = self.config.hop_length, self.enc1.reach
        frames, lengths = [], []
        for signal in signals:
            audio = nn.functional.pad(signal.to(self.tau.device), (0, -signal.numel() % hop))
            frames.append(frame_signal(audio, self.config.n_fft, hop))  # a view: overlapping frames take no memory
            lengths.append(frames[-1].shape[0])
        total = sum(lengths)
        timeline = Packed.consecutive(self.tau.new_empty(total, 0), tuple(lengths))
        z1 = torch.empty(total, self.config.dim, device=self.tau.device)
        features = []
        for start in range(0, total, self.piece):
            stop = min(total, start + self.piece)
            begin, end = max(0, start - reach), min(total, stop + reach)
            rows = _rows(frames, begin, end)
            spectrum = self.front_end.spectrum(rows)
            inner = slice(start - begin, stop - begin)
            z1[start:stop] = self.enc1(timeline.slice(begin, end).with_values(self.front_end(spectrum, rows)))[inner]
            features.append(self._selector_features(chosen, z1[start:stop], spectrum[inner]))
        return z1, z1 if chosen.features == "z1" else torch.cat(features)

    def _selector_features(self, chosen: SelectorConfig, z1: Tensor, spectrum: Tensor) -> Tensor:
        if chosen.features == "z1":
            return z1.detach().float()
        with torch.autocast(spectrum.device.type, enabled=False):
            return torch.log(spectrum.abs() @ self.mel_filters + 1e-5)

    def _kept(self, z1: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Packed:
        return self._kept_positions(mask, lengths).with_values(self.down(z1, mask))

    def _kept_positions(self, mask: Tensor, lengths: tuple[int, ...]) -> Packed:
        """Where the kept steps stand in time, or in rank. The values are empty."""
        kept = tuple(int(m.sum()) for m in torch.split(mask, list(lengths)))
        empty = torch.empty(sum(kept), 0, device=mask.device)
        ranks = Packed.consecutive(empty, kept)
        if self.config.stage2_positions == "rank":
            return ranks
        times = torch.cat([torch.arange(n, device=mask.device) for n in lengths])
        return replace(ranks, positions=times[mask])

    def _synthesize(self, h: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> list[Tensor]:
        """Up, Dec2 and iSTFT in pieces. h: (sum K, D), mask: (sum N,) -> audio of each utterance, (N hop,)"""
        hop, overlap, reach = self.config.hop_length, self.config.n_fft // self.config.hop_length, self.dec2.reach
        total = mask.numel()
        timeline = Packed.consecutive(self.tau.new_empty(total, 0), lengths)
        segments, starts = segment_of(mask), mask.nonzero().squeeze(1)
        sums = [torch.zeros((n + overlap - 1) * hop, device=mask.device) for n in lengths]
        envelopes = [torch.zeros_like(x) for x in sums]
        utterance_starts = np.cumsum([0, *lengths])
        pulses: Pulses | None = None
        for start in range(0, total, self.piece):
            stop = min(total, start + self.piece)
            begin, end = max(0, start - reach), min(total, stop + reach)
            # A piece may begin within a segment: upsample that from its start, or from where it is long enough.
            first = max(int(starts[segments[begin]]), begin - self.piece)
            inside = mask[first:end].clone()
            inside[0] = True
            z1_hat = self.up(h[segments[begin] : segments[end - 1] + 1], inside)[begin - first :]
            z = self.dec2(timeline.slice(begin, end).with_values(z1_hat))[start - begin : stop - begin]
            frames, pulses = self.head.render(z, timeline.positions[start:stop], pulses)
            windows = self.head.window.square().expand_as(frames)
            for i, (low, high) in enumerate(pairwise(utterance_starts)):
                a, b = max(start, low), min(stop, high)
                if a < b:
                    span = slice((a - low) * hop, (b - low + overlap - 1) * hop)
                    sums[i][span] += overlap_add(frames[a - start : b - start], hop)
                    envelopes[i][span] += overlap_add(windows[a - start : b - start], hop)
        edge = (self.config.n_fft - hop) // 2
        return [(x / w.clamp(min=1e-8))[edge:-edge] for x, w in zip(sums, envelopes, strict=True)]


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, VectorQuantizer | FiniteScalarQuantizer):
        # what leaves the bottleneck has the scale of what enters it, not that of a residual branch
        nn.init.normal_(module.project_out.weight)
    elif isinstance(module, SourceFilterHead):
        module.start_quiet()


def _rows(frames: list[Tensor], begin: int, end: int) -> Tensor:
    """Rows begin ... end - 1 of matrices stacked end to end, without stacking them all."""
    rows, offset = [], 0
    for matrix in frames:
        rows.append(matrix[max(0, begin - offset) : max(0, end - offset)])
        offset += matrix.shape[0]
    return torch.cat(rows)
