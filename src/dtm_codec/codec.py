"""DTMCodec: the network with everything around it that turns speech into tokens and back.

Utterances of any lengths are packed end to end, without padding; long ones take memory for one piece and their
Stage-1 vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import hub
from .config import CodecConfig, SelectorConfig
from .encoded import Encoded, Layout
from .errors import ModelError, RateError
from .network import Network
from .rate.calibration import calibrate
from .rate.request import RateRequest
from .selectors import Selector, build
from .selectors.stride import Stride
from .speech.audio import Samples, as_mono, check_sample_rate, resample

if TYPE_CHECKING:
    from .bitstream.token_coder import TokenModel

Item = TypeVar("Item")

DEFAULT_S_MAX = 4
"""Span limit of the segmenting selectors when the model's own selector has none (CodecSlime, VARSTok)."""


@dataclass(frozen=True)
class _Version:
    """Which weights and token statistics a codec has, as far as that can be told without reading them."""

    weights: tuple[tuple[int, int], ...]
    token_model: TokenModel | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Version) and self.weights == other.weights and self.token_model is other.token_model


class DTMCodec(Network):
    """A speech codec whose tokens come where speech changes."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__(config)
        self.token_model: TokenModel | None = None
        self._identity: tuple[_Version, str] | None = None

    # The two halves

    @overload
    def encode(
        self,
        audio: list[Any] | tuple[Any, ...],
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
        audio: list[Any] | tuple[Any, ...] | npt.NDArray[Any] | Tensor,
        sample_rate: int,
        *,
        bitrate: float | None = None,
        token_rate: float | None = None,
        tau: float | None = None,
        selector: str | SelectorConfig | None = None,
    ) -> Encoded | list[Encoded]:
        """Speech to tokens.

        audio: one utterance as an array or tensor, (T,) or (channels, T), or a list or tuple of them.
        sample_rate: of the audio; it is resampled to the model's.
        bitrate: total bits a second, position bits included. PLE, greedy and DP meet it on each utterance to within one
        token where nothing in it is digitally silent, other selectors as nearly as they can; at a fixed rate it must be
        within 2 % of what the model has.
        token_rate: tokens a second. tau: the selector's own knob. Without any of the three, the tau of training.
        selector: another selector than the model's, by name or configuration.
        """
        request = RateRequest(bitrate, token_rate, tau)
        check_sample_rate(sample_rate)
        chosen = self._selector_config(selector)
        utterances = audio if isinstance(audio, list | tuple) else [audio]
        signals = [resample(as_mono(x), sample_rate, self.config.sample_rate) for x in utterances]
        encoded = [
            e
            for group in _grouped(signals, self._steps(signals), self.piece)
            for e in self._encode_group(group, chosen, request)
        ]
        return encoded if isinstance(audio, list | tuple) else encoded[0]

    @overload
    def decode(self, encoded: list[Encoded] | tuple[Encoded, ...]) -> list[Samples]: ...

    @overload
    def decode(self, encoded: Encoded) -> Samples: ...

    @torch.inference_mode()
    def decode(self, encoded: Encoded | list[Encoded] | tuple[Encoded, ...]) -> Samples | list[Samples]:
        """Tokens to speech: float32 at the model's sample rate, exactly as many samples as were encoded."""
        batch = encoded if isinstance(encoded, list | tuple) else [encoded]
        for e in batch:
            self._check_mine(e)
        decoded = []
        for group in _grouped(batch, [e.mask.size for e in batch], self.piece):
            masks = [torch.from_numpy(e.mask) for e in group]
            lengths = tuple(mask.numel() for mask in masks)
            mask = torch.cat(masks).to(self.tau.device)
            packed = self._kept_positions(mask, lengths)
            codes = torch.from_numpy(np.concatenate([e.codes for e in group])).to(self.tau.device)
            h = self.dec1.in_pieces(packed.with_values(self.quantizer.decode(codes)), self.piece)
            signals = self._synthesize(h, mask, lengths)
            decoded += [x[: e.num_samples].cpu().numpy() for x, e in zip(signals, group, strict=True)]
        return decoded if isinstance(encoded, list | tuple) else decoded[0]

    @torch.inference_mode()
    def embed(self, encoded: Encoded) -> Tensor:
        """Quantized embeddings z2_hat of an utterance, as probes of its content use them. -> (K, D)"""
        self._check_mine(encoded)
        return self.quantizer.decode(torch.from_numpy(encoded.codes).to(self.tau.device))

    @torch.inference_mode()
    def stage1(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        """Stage-1 vectors z1 of one utterance, what the paper's selectors look at. -> (N, D)"""
        return self._stage1([self._signal(audio, sample_rate)], self.config.selector)[0]

    @torch.inference_mode()
    def selector_statistics(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        """What the model's selector decides on, for one utterance. -> (N, C)"""
        return self.selector.statistics(self._stage1([self._signal(audio, sample_rate)], self.config.selector)[1])

    def _signal(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        return torch.from_numpy(resample(as_mono(audio), check_sample_rate(sample_rate), self.config.sample_rate))

    # Models as folders

    @classmethod
    @torch.inference_mode(False)
    def from_pretrained(cls, name_or_folder: str | PathLike[str] = hub.DEFAULT_MODEL, device: str = "cpu") -> DTMCodec:
        """Load a bundled model by name, a folder, a hub id 'owner/name', or 'random:PRESET' (untrained)."""
        hub.check_device(device)
        loaded = hub.load(name_or_folder)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(hub.RANDOM_SEED)
            codec = cls(loaded.config)
        if loaded.tensors is not None:
            hub.fill(codec, loaded.tensors, loaded.origin)
            codec.token_model = loaded.token_model
        codec.eval().requires_grad_(False).to(device)
        if loaded.tensors is not None:
            codec._identify_as(loaded.model_id)
        return codec

    def save_pretrained(self, folder: str | PathLike[str], dtype: torch.dtype = torch.float32) -> str:
        """Write weights, configuration and token statistics into `folder`; returns the model id of what was written."""
        return hub.save(self, folder, dtype)

    @property
    def model_id(self) -> str:
        """Name and fingerprint of the weights, as in 's-vfr-50:1f3a'. Files carry it; only this model decodes them."""
        if self._identity is None or self._identity[0] != self._weights_version():
            self._identify_as(hub.identify(self))
        assert self._identity is not None
        return self._identity[1]

    def _identify_as(self, model_id: str) -> None:
        """Take this id until a weight changes, and let files of that id use the token statistics."""
        self._identity = (self._weights_version(), model_id)
        hub.register_token_model(model_id, self.token_model)

    def _weights_version(self) -> _Version:
        """Changes when a weight or the token statistics are replaced, or a weight changes in place. (A change through
        `.data` is hidden from torch and from this.)"""
        weights = self.state_dict(keep_vars=True).values()
        versions = tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights)
        return _Version(versions, self.token_model)

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
            s_max = own.s_max if selector != "stride" else None
            if selector in ("dp", "lagrangian", "peaks"):
                s_max = s_max or DEFAULT_S_MAX
            selector = SelectorConfig.from_dict(
                {"name": selector, "s_max": s_max, "features": own.features}, "selector"
            )
        if self.config.downsampler == "conv" and selector.name != "stride":
            raise RateError(f"selector {selector.name!r} with conv resampling; allowed: 'stride'")
        return selector

    @torch.inference_mode()
    def _encode_group(self, signals: list[Samples], chosen: SelectorConfig, request: RateRequest) -> list[Encoded]:
        """Encode a few short utterances, or one long one."""
        z1, features = self._stage1([torch.from_numpy(x) for x in signals], chosen)
        lengths = self._steps(signals)
        masks, layouts = self._select(signals, torch.split(features, list(lengths)), chosen, request)
        kept = self._kept(z1, torch.cat(masks), lengths)
        del z1, features  # the largest tensors of a long utterance
        codes = self.quantizer.encode(self.enc2.in_pieces(kept, self.piece)).cpu().numpy()
        ends = np.cumsum(kept.lengths)[:-1]
        return [
            Encoded(own_codes, own_mask.cpu().numpy(), signal.size, self.model_id, layout)
            for own_codes, own_mask, signal, layout in zip(np.split(codes, ends), masks, signals, layouts, strict=True)
        ]

    def _steps(self, signals: list[Samples]) -> tuple[int, ...]:
        return tuple(self.layout.steps(x.size) for x in signals)

    def _select(
        self, signals: list[Samples], features: Sequence[Tensor], chosen: SelectorConfig, request: RateRequest
    ) -> tuple[list[Tensor], list[Layout]]:
        """Keep mask of each utterance, and the layout that it makes. features: (N, D or bands) each"""
        selector = self.selector if chosen == self.config.selector else build(chosen)
        masks, layouts = [], []
        for signal, own_features in zip(signals, features, strict=True):
            statistics = selector.statistics(own_features)
            tau = self._tau(selector, statistics, signal.size, request)
            masks.append(selector.keep(statistics, tau))
            layouts.append(self._layout(selector.span(tau) if isinstance(selector, Stride) else None))
        return masks, layouts

    def _tau(self, selector: Selector, statistics: Tensor, num_samples: int, request: RateRequest) -> float:
        """The tau that meets the request for one utterance."""
        if isinstance(selector, Stride):
            only = self.config.stride if self.config.downsampler == "conv" else None
            stride = request.stride(self.layout, self.config.stride, only)
            if request.tau is None and selector.span(stride) != stride:
                raise RateError(f"every {stride}-th step with s_max = {selector.s_max}; allowed: a stride up to s_max")
            return float(stride)
        if request.tau is not None:
            return request.tau
        if not request.is_open:
            target = request.tokens(num_samples, self._layout(None), selector.s_max)
        elif selector is self.selector and not self.tau.isnan():
            return float(self.tau)
        else:
            target = max(1, round(self.config.keep_ratio * statistics.shape[0]))
        return calibrate(selector, [statistics], target).tau

    # Decoding

    def _check_mine(self, encoded: Encoded) -> None:
        if encoded.model_id != self.model_id:
            raise ModelError(f"encoded by model {encoded.model_id!r}; this is model {self.model_id!r}")
        if encoded.codes.max() >= self.config.quantizer.codebook_size:
            raise ModelError(f"code {encoded.codes.max()}; allowed: 0 ... {self.config.quantizer.codebook_size - 1}")


def _grouped(items: Sequence[Item], steps: Sequence[int], most: int) -> Iterator[list[Item]]:
    """Neighbours together, up to `most` steps in all."""
    group: list[Item] = []
    held = 0
    for item, count in zip(items, steps, strict=True):
        if group and held + count > most:
            yield group
            group, held = [], 0
        group.append(item)
        held += count
    if group:
        yield group
