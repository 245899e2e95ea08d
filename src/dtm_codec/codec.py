"""DTMCodec: Eq. 1 of the paper as code.

    x -STFT-> S -Enc1-> z1 -DTM-> z1_kept -Enc2-> z2 -VQ-> z2_hat -Dec1-> h -Up-> z1_hat -Dec2-> spec_hat -iSTFT-> x_hat

`forward` is the whole chain for training on crops of equal length. `encode` and `decode` are its two halves for
utterances of any lengths, packed end to end, in pieces that bound the memory: attention has a finite reach, so a
piece computed with its reach around it is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from . import hub
from .audio import as_mono, check_sample_rate, resample
from .config import CodecConfig, SelectorConfig
from .encoded import Encoded, Layout
from .errors import ModelError, RateError
from .nn.packed import Packed
from .nn.quantizers import QuantizerOutput, build_quantizer
from .nn.resampling import build_downsampler, build_upsampler, segment_of
from .nn.spectral import FrontEnd, SpectralHead, frame_signal, mel_filterbank, overlap_add
from .nn.transformer import TransformerStack
from .rate.calibration import calibrate
from .rate.request import RateRequest
from .selectors import Selector, build

if TYPE_CHECKING:
    from .bitstream.token_coder import TokenModel

Samples = npt.NDArray[np.float32]
AudioLike = npt.NDArray[Any] | Tensor | Sequence[float]

PIECE = 8192
"""Steps computed at a time: 82 s of Stage 1 at 100 Hz. A multiple of the window, so that pieces share its blocks."""

SELECTOR_MELS = 40
"""Bands of the log-mel spectrogram that a selector may look at instead of z1."""

DEFAULT_S_MAX = 4
"""Span limit of the segmenting selectors when the model's own selector has none (CodecSlime, VARSTok)."""


@dataclass(frozen=True)
class CodecOutput:
    """What training needs of a forward pass."""

    audio: Tensor
    """(B, T) reconstruction"""
    mask: Tensor
    """(B, N) bool, True = kept"""
    quantizer: QuantizerOutput
    """Codes of all kept steps, (sum K,), and the quantizer's loss."""


class DTMCodec(nn.Module):
    """A speech codec whose tokens come where speech changes."""

    tau: Tensor
    mel_filters: Tensor

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.token_model: TokenModel | None = None
        self.selector = build(config.selector)
        self.front_end = FrontEnd(
            config.n_fft, config.hop_length, config.dim, log_magnitude=config.spectral_features == "complex+logmag"
        )
        self.enc1 = self._stack(config.enc1_layers)
        self.down = build_downsampler(config.downsampler, config.dim, config.stride)
        self.enc2 = self._stack(config.enc2_layers)
        self.quantizer = build_quantizer(config.quantizer, config.dim)
        self.dec1 = self._stack(config.dec1_layers)
        self.up = build_upsampler(config.upsampler, config.dim, config.stride)
        self.dec2 = self._stack(config.dec2_layers)
        self.head = SpectralHead(config.n_fft, config.hop_length, config.dim)
        self.apply(_initialize)
        # until training has steered it, a data-dependent tau is unknown: each utterance is calibrated on its own
        known = config.selector.name in ("stride", "random")
        tau = {"stride": config.stride, "random": 1 / config.keep_ratio}[config.selector.name] if known else np.nan
        self.register_buffer("tau", torch.tensor(tau, dtype=torch.float64))
        filters = mel_filterbank(config.sample_rate, config.n_fft, SELECTOR_MELS).T.contiguous()
        self.register_buffer("mel_filters", filters, persistent=False)
        self._identity: tuple[int, str] | None = None

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

    # Training

    def forward(self, audio: Tensor) -> CodecOutput:
        """The whole chain on crops of equal length. audio: (B, T), T a multiple of the hop."""
        z1, features, lengths = self._stage1_of_crops(audio)
        mask = self.selector.select(features, list(lengths), float(self.tau), self.training)  # (B N,)
        z2 = self.enc2(self._kept(z1.values, mask, lengths))
        quantized = self.quantizer(z2)
        h = self.dec1(self._kept_positions(mask, lengths).with_values(quantized.values))
        z1_hat = self.up(h, mask)
        frames = self.head(self.dec2(z1.with_values(z1_hat)))
        frames = frames.view(audio.shape[0], -1, self.config.n_fft)  # (B, N, n_fft)
        return CodecOutput(self.head.synthesize(frames), mask.view(audio.shape[0], -1), quantized)

    @torch.no_grad()
    def calibrated_tau(self, audio: Tensor) -> float:
        """The tau at which these crops, taken together, have the configured keep ratio. audio: (B, T)"""
        _, features, lengths = self._stage1_of_crops(audio)
        statistics = [self.selector.statistics(x) for x in torch.split(features, list(lengths))]
        return calibrate(self.selector, statistics, round(self.config.keep_ratio * sum(lengths))).tau

    def _stage1_of_crops(self, audio: Tensor) -> tuple[Packed, Tensor, tuple[int, ...]]:
        frames = frame_signal(audio, self.config.n_fft, self.config.hop_length)  # (B, N, n_fft)
        lengths = (frames.shape[1],) * frames.shape[0]
        spectrum = self.front_end.spectrum(frames.flatten(0, 1))
        packed = Packed.consecutive(self.front_end(spectrum), lengths)
        z1 = self.enc1(packed)
        return packed.with_values(z1), self._selector_features(self.config.selector, z1, spectrum), lengths

    # The two halves

    @overload
    def encode(
        self,
        audio: list[Any],
        sample_rate: int,
        *,
        bitrate: float | None = None,
        token_rate: float | None = None,
        tau: float | None = None,
        selector: str | SelectorConfig | None = None,
    ) -> list[Encoded]: ...

    @overload
    def encode(
        self,
        audio: npt.NDArray[Any] | Tensor,
        sample_rate: int,
        *,
        bitrate: float | None = None,
        token_rate: float | None = None,
        tau: float | None = None,
        selector: str | SelectorConfig | None = None,
    ) -> Encoded: ...

    def encode(
        self,
        audio: list[Any] | npt.NDArray[Any] | Tensor,
        sample_rate: int,
        *,
        bitrate: float | None = None,
        token_rate: float | None = None,
        tau: float | None = None,
        selector: str | SelectorConfig | None = None,
    ) -> Encoded | list[Encoded]:
        """Speech to tokens.

        audio: one utterance as an array or tensor, (T,) or (channels, T), or a list of them.
        sample_rate: of the audio; it is resampled to the model's.
        bitrate: total bits a second, position bits included; met by each utterance to within one token.
        token_rate: tokens a second. tau: the selector's own knob. Without any of the three, the tau of training.
        selector: another selector than the model's, by name or configuration.
        """
        request = RateRequest(bitrate, token_rate, tau)
        check_sample_rate(sample_rate)
        chosen = self._selector_config(selector)
        utterances = audio if isinstance(audio, list) else [audio]
        signals = [resample(as_mono(x), sample_rate, self.config.sample_rate) for x in utterances]
        encoded = [e for group in self._groups(signals) for e in self._encode_group(group, chosen, request)]
        return encoded if isinstance(audio, list) else encoded[0]

    @overload
    def decode(self, encoded: list[Encoded]) -> list[Samples]: ...

    @overload
    def decode(self, encoded: Encoded) -> Samples: ...

    @torch.inference_mode()
    def decode(self, encoded: Encoded | list[Encoded]) -> Samples | list[Samples]:
        """Tokens to speech: float32 at the model's sample rate, exactly as many samples as were encoded."""
        batch = encoded if isinstance(encoded, list) else [encoded]
        for e in batch:
            self._check_mine(e)
        decoded = []
        for group in _grouped(batch, [e.mask.size for e in batch]):
            masks = [torch.from_numpy(e.mask) for e in group]
            lengths = tuple(mask.numel() for mask in masks)
            mask = torch.cat(masks).to(self.tau.device)
            packed = self._kept_positions(mask, lengths)
            codes = torch.from_numpy(np.concatenate([e.codes for e in group])).to(self.tau.device)
            h = self.dec1.in_pieces(packed.with_values(self.quantizer.decode(codes)), PIECE)
            signals = self._synthesize(h, mask, lengths)
            decoded += [x[: e.num_samples].cpu().numpy() for x, e in zip(signals, group, strict=True)]
        return decoded if isinstance(encoded, list) else decoded[0]

    @torch.inference_mode()
    def embed(self, encoded: Encoded) -> Tensor:
        """Quantized embeddings z2_hat of an utterance, as probes of its content use them. -> (K, D)"""
        self._check_mine(encoded)
        return self.quantizer.decode(torch.from_numpy(encoded.codes).to(self.tau.device))

    @torch.inference_mode()
    def stage1(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        """Stage-1 vectors z1 of one utterance, what the paper's selectors look at. -> (N, D)"""
        signal = resample(as_mono(audio), check_sample_rate(sample_rate), self.config.sample_rate)
        return self._stage1([signal], self.config.selector)[0]

    def selector_statistics(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        """What the model's selector decides on, for one utterance. -> (N, C)"""
        signal = resample(as_mono(audio), check_sample_rate(sample_rate), self.config.sample_rate)
        with torch.inference_mode():
            return self.selector.statistics(self._stage1([signal], self.config.selector)[1])

    # Models as folders

    @classmethod
    def from_pretrained(cls, name_or_folder: str | PathLike[str] = hub.DEFAULT_MODEL, device: str = "cpu") -> DTMCodec:
        """Load a bundled model by name, a folder, a hub id 'owner/name', or 'random:PRESET' (untrained)."""
        loaded = hub.load(name_or_folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hub.RANDOM_SEED)
            codec = cls(loaded.config)
        if loaded.tensors is not None:
            hub.fill(codec, loaded.tensors, loaded.origin)
            codec.token_model = loaded.token_model
            codec._identity = (codec._weights_version(), loaded.model_id)
        codec.eval().requires_grad_(False)
        hub.register_token_model(codec.model_id, codec.token_model)
        return codec.to(device)

    def save_pretrained(self, folder: str | PathLike[str], dtype: torch.dtype = torch.float32) -> str:
        """Write weights, configuration and token statistics into `folder`; returns the model id of what was written."""
        return hub.save(self, folder, dtype)

    @property
    def model_id(self) -> str:
        """Name and fingerprint of the weights, as in 's-vfr-50:1f3a'. Files carry it; only this model decodes them."""
        version = self._weights_version()
        if self._identity is None or self._identity[0] != version:
            self._identity = (version, hub.identify(self))
        return self._identity[1]

    def _weights_version(self) -> int:
        """Changes when a weight changes in place."""
        return sum(tensor._version for tensor in self.state_dict(keep_vars=True).values())

    @property
    def layout(self) -> Layout:
        """How this model's streams are laid out with its own selector."""
        return self._layout(self.config.stride if self.config.is_fixed_rate else None)

    def _layout(self, stride: int | None) -> Layout:
        config = self.config
        return Layout(config.sample_rate, config.hop_length, config.quantizer.token_bits, stride)

    @property
    def num_parameters(self) -> int:
        """Trainable numbers."""
        return sum(p.numel() for p in self.parameters())

    # Encoding

    def _selector_config(self, selector: str | SelectorConfig | None) -> SelectorConfig:
        own = self.config.selector
        if selector is None or selector == own.name:
            return own
        if isinstance(selector, str):
            s_max = (own.s_max or DEFAULT_S_MAX) if selector in ("dp", "lagrangian", "peaks") else own.s_max
            selector = SelectorConfig.from_dict(
                {"name": selector, "s_max": s_max, "features": own.features}, "selector"
            )
        if self.config.downsampler == "conv" and selector.name != "stride":
            raise RateError(f"selector {selector.name!r} with conv resampling; allowed: 'stride'")
        return selector

    def _groups(self, signals: list[Samples]) -> Iterator[list[Samples]]:
        return _grouped(signals, [-(-x.size // self.config.hop_length) for x in signals])

    @torch.inference_mode()
    def _encode_group(self, signals: list[Samples], chosen: SelectorConfig, request: RateRequest) -> list[Encoded]:
        """Encode a few short utterances, or one long one."""
        selector = self.selector if chosen == self.config.selector else build(chosen)
        z1, features = self._stage1(signals, chosen)
        lengths = tuple(-(-x.size // self.config.hop_length) for x in signals)
        masks, layouts = [], []
        for signal, own_features in zip(signals, torch.split(features, list(lengths)), strict=True):
            statistics = selector.statistics(own_features)
            tau = self._tau(selector, statistics, signal.size, request)
            masks.append(selector.keep(statistics, tau))
            layouts.append(self._layout(int(tau) if chosen.name == "stride" else None))
        mask = torch.cat(masks)
        kept = self._kept(z1, mask, lengths)
        del z1  # the largest tensor of a long utterance
        codes = self.quantizer.encode(self.enc2.in_pieces(kept, PIECE)).cpu().numpy()
        ends = np.cumsum([int(m.sum()) for m in masks])[:-1]
        return [
            Encoded(own_codes, own_mask.cpu().numpy(), signal.size, self.model_id, layout)
            for own_codes, own_mask, signal, layout in zip(np.split(codes, ends), masks, signals, layouts, strict=True)
        ]

    def _stage1(self, signals: list[Samples], chosen: SelectorConfig) -> tuple[Tensor, Tensor]:
        """z1 and what the selector looks at, in pieces. -> (sum N, D), (sum N, D or bands)"""
        hop, reach = self.config.hop_length, self.enc1.reach
        frames, lengths = [], []
        for signal in signals:
            audio = torch.from_numpy(signal).to(self.tau.device)
            audio = nn.functional.pad(audio, (0, -signal.size % hop))
            frames.append(frame_signal(audio, self.config.n_fft, hop))  # a view: overlapping frames take no memory
            lengths.append(frames[-1].shape[0])
        total = sum(lengths)
        timeline = Packed.consecutive(self.tau.new_empty(total, 0), tuple(lengths))
        z1 = torch.empty(total, self.config.dim, device=self.tau.device)
        features = []
        for start in range(0, total, PIECE):
            stop = min(total, start + PIECE)
            begin, end = max(0, start - reach), min(total, stop + reach)
            spectrum = self.front_end.spectrum(_rows(frames, begin, end))
            inner = slice(start - begin, stop - begin)
            z1[start:stop] = self.enc1(timeline.slice(begin, end).with_values(self.front_end(spectrum)))[inner]
            features.append(self._selector_features(chosen, z1[start:stop], spectrum[inner]))
        return z1, z1 if chosen.features == "z1" else torch.cat(features)

    def _selector_features(self, chosen: SelectorConfig, z1: Tensor, spectrum: Tensor) -> Tensor:
        if chosen.features == "z1":
            return z1.detach().float()
        return torch.log(spectrum.abs() @ self.mel_filters + 1e-5)

    def _tau(self, selector: Selector, statistics: Tensor, num_samples: int, request: RateRequest) -> float:
        """The tau that meets the request for one utterance."""
        if request.tau is not None:
            return request.tau
        if selector.name == "stride":
            only = self.config.stride if self.config.downsampler == "conv" else None
            return float(request.stride(self.layout, self.config.stride, only))
        if not request.is_open:
            target = request.tokens(num_samples, self._layout(None), selector.s_max)
        elif selector is self.selector and not self.tau.isnan():
            return float(self.tau)
        else:
            target = max(1, round(self.config.keep_ratio * statistics.shape[0]))
        return calibrate(selector, [statistics], target).tau

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

    # Decoding

    def _check_mine(self, encoded: Encoded) -> None:
        if encoded.model_id != self.model_id:
            raise ModelError(f"encoded by model {encoded.model_id!r}; this is model {self.model_id!r}")
        if encoded.codes.max() >= self.config.quantizer.codebook_size:
            raise ModelError(f"code {encoded.codes.max()}; allowed: 0 ... {self.config.quantizer.codebook_size - 1}")

    def _synthesize(self, h: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> list[Tensor]:
        """Up, Dec2 and iSTFT in pieces. h: (sum K, D), mask: (sum N,) -> audio of each utterance, (N hop,)"""
        hop, overlap, reach = self.config.hop_length, self.config.n_fft // self.config.hop_length, self.dec2.reach
        total = mask.numel()
        timeline = Packed.consecutive(self.tau.new_empty(total, 0), lengths)
        segments, starts = segment_of(mask), mask.nonzero().squeeze(1)
        sums = [torch.zeros((n + overlap - 1) * hop, device=mask.device) for n in lengths]
        envelopes = [torch.zeros_like(x) for x in sums]
        utterance_starts = np.cumsum([0, *lengths])
        for start in range(0, total, PIECE):
            stop = min(total, start + PIECE)
            begin, end = max(0, start - reach), min(total, stop + reach)
            first = int(starts[segments[begin]])  # a piece may begin within a segment: upsample that whole segment
            z1_hat = self.up(h[segments[begin] : segments[end - 1] + 1], mask[first:end])[begin - first :]
            z = self.dec2(timeline.slice(begin, end).with_values(z1_hat))[start - begin : stop - begin]
            frames = self.head(z)
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


def _rows(frames: list[Tensor], begin: int, end: int) -> Tensor:
    """Rows begin ... end - 1 of matrices stacked end to end, without stacking them all."""
    rows, offset = [], 0
    for matrix in frames:
        rows.append(matrix[max(0, begin - offset) : max(0, end - offset)])
        offset += matrix.shape[0]
    return torch.cat(rows)


def _grouped(items: list[Any], steps: list[int]) -> Iterator[list[Any]]:
    """Neighbours together, up to `PIECE` steps in all."""
    group: list[Any] = []
    held = 0
    for item, count in zip(items, steps, strict=True):
        if group and held + count > PIECE:
            yield group
            group, held = [], 0
        group.append(item)
        held += count
    if group:
        yield group
