"""DTMCodec: a network, and everything around it that turns speech into tokens and files, and back.

Utterances of any lengths are packed end to end, without padding; long ones take memory for one piece and their
Stage-1 vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import hub
from .bitstream.token_coder import TokenModel
from .config import CodecConfig, SelectorConfig
from .encoded import Encoded, Layout, Mode
from .errors import ModelError, RateError
from .files import write_atomically
from .grouping import grouped
from .network import Network
from .rate.calibration import calibrate
from .rate.request import RateRequest
from .refinement import Refiner, check_effort
from .selectors import Selector, build
from .selectors.stride import Stride
from .speech.audio import Samples, as_mono, check_sample_rate, resample

DEFAULT_S_MAX = 4
"""Span limit of the segmenting selectors when the model's own selector has none (CodecSlime, VARSTok)."""


class DTMCodec:
    """A speech codec whose tokens come where speech changes."""

    def __init__(self, config: CodecConfig) -> None:
        """Untrained; `from_pretrained` loads one that can be used."""
        self.network = Network(config).eval().requires_grad_(False)
        self.token_model: TokenModel | None = None
        """Statistics of tokens, for smaller files."""
        self._identity: tuple[object, str] = (None, "")

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
        effort: int = 0,
        on_progress: Callable[[float], None] | None = None,
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
        effort: int = 0,
        on_progress: Callable[[float], None] | None = None,
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
        effort: int = 0,
        on_progress: Callable[[float], None] | None = None,
    ) -> Encoded | list[Encoded]:
        """Speech to tokens.

        audio: one utterance as an array or tensor, (T,) or (channels, T), or a list or tuple of them.
        sample_rate: of the audio; it is resampled to the model's.
        bitrate: total bits a second, position bits included. PLE, greedy and DP meet it on each utterance to within one
        token where nothing in it is digitally silent, other selectors as nearly as they can; at a fixed rate it must be
        within 2 % of what the model has.
        token_rate: tokens a second. tau: the selector's own knob. Without any of the three, the tau of training.
        selector: another selector than the model's, by name or configuration.
        effort: how many other codes are tried for every token, to come nearer to the original (`refinement.py`);
        0 takes the encoder's own. Files and decoder are the same.
        on_progress: is told after each round of the search how much of all audio is done, 0 ... 1.
        """
        request = RateRequest(bitrate, token_rate, tau)
        rounds = check_effort(effort)
        refiner = Refiner(self.network, rounds) if rounds else None
        check_sample_rate(sample_rate)
        chosen = self._selector_config(selector)
        utterances = audio if isinstance(audio, list | tuple) else [audio]
        signals = [resample(as_mono(x), sample_rate, self.config.sample_rate) for x in utterances]
        if refiner and on_progress:
            refiner.watch(sum(self.layout.steps(x.size) for x in signals), on_progress)
        encoded = [
            e
            for group in grouped(signals, lambda x: self.layout.steps(x.size), self.network.piece)
            for e in self._encode_group(group, chosen, request, refiner)
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
        for group in grouped(batch, lambda e: e.mask.size, self.network.piece):
            lengths = tuple(e.mask.size for e in group)
            mask = self._tensor(np.concatenate([e.mask for e in group]))
            codes = self._tensor(np.concatenate([e.codes for e in group]))
            signals = self.network.synthesize(codes, mask, lengths)
            decoded += [x[: e.num_samples].cpu().numpy() for x, e in zip(signals, group, strict=True)]
        return decoded if isinstance(encoded, list | tuple) else decoded[0]

    @torch.inference_mode()
    def embed(self, encoded: Encoded) -> Tensor:
        """Quantized embeddings z2_hat of an utterance, as probes of its content use them. -> (K, D)"""
        self._check_mine(encoded)
        return self.network.quantizer.decode(self._tensor(encoded.codes))

    @torch.inference_mode()
    def stage1(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        """Stage-1 vectors z1 of one utterance, what the paper's selectors look at. -> (N, D)"""
        return self.network.analyse([self._signal(audio, sample_rate)], "z1")[0]

    @torch.inference_mode()
    def selector_statistics(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        """What the model's selector decides on, for one utterance. -> (N, C)"""
        _, features, _ = self.network.analyse([self._signal(audio, sample_rate)], self.config.selector.features)
        return self.network.selector.statistics(features)

    def _signal(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        return torch.from_numpy(resample(as_mono(audio), check_sample_rate(sample_rate), self.config.sample_rate))

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.network.tau.device)

    # Files

    def to_bytes(self, encoded: Encoded, mode: Mode = "compact") -> bytes:
        """The `.dtm` file of an utterance; compact ones are packed with this model's token statistics."""
        return encoded.to_bytes(mode, self.token_model)

    def from_bytes(self, data: bytes) -> Encoded:
        """Read a `.dtm` file of this model."""
        encoded = Encoded.from_bytes(data, self.token_model)
        self._check_mine(encoded)
        return encoded

    def save(self, encoded: Encoded, path: str | PathLike[str], mode: Mode = "compact") -> None:
        """Write a `.dtm` file under a temporary name, then rename it."""
        write_atomically(path, self.to_bytes(encoded, mode))

    def load(self, path: str | PathLike[str]) -> Encoded:
        return self.from_bytes(Path(path).read_bytes())

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
        if loaded.tensors is None:
            return codec.to(device)
        hub.fill(codec.network, loaded.tensors, loaded.origin)
        codec.token_model = loaded.token_model
        codec.to(device)
        codec._identity = (codec._weights_version(), loaded.model_id)
        return codec

    def save_pretrained(self, folder: str | PathLike[str], dtype: torch.dtype = torch.float32) -> str:
        """Write weights, configuration and token statistics into `folder`; returns the model id of what was written."""
        return hub.save(self.network, self.token_model, folder, dtype)

    def to(self, device: str | torch.device) -> DTMCodec:
        self.network.to(device)
        return self

    @property
    def config(self) -> CodecConfig:
        return self.network.config

    @property
    def model_id(self) -> str:
        """Name and fingerprint of the weights, as in 's-vfr-50:1f3a5c7e'. Files carry it; only this model decodes
        them."""
        version = self._weights_version()
        if self._identity[0] != version:
            self._identity = (version, hub.identify(self.network))
        return self._identity[1]

    def _weights_version(self) -> tuple[tuple[int, int], ...]:
        """Differs after a weight was replaced or changed in place. (A change through `.data` is hidden from torch and
        from this.)"""
        weights = self.network.state_dict(keep_vars=True).values()
        return tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights)

    @property
    def layout(self) -> Layout:
        """How this model's streams are laid out with its own selector."""
        return self._layout(self.config.stride if self.config.is_fixed_rate else None)

    def _layout(self, stride: int | None) -> Layout:
        config = self.config
        return Layout(config.sample_rate, config.hop_length, config.quantizer.token_bits, stride)

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.network.parameters())

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
    def _encode_group(
        self, signals: list[Samples], chosen: SelectorConfig, request: RateRequest, refiner: Refiner | None
    ) -> list[Encoded]:
        """Encode a few short utterances, or one long one."""
        z1, features, timeline = self.network.analyse([torch.from_numpy(x) for x in signals], chosen.features)
        masks, layouts = self._select(signals, torch.split(features, list(timeline.lengths)), chosen, request)
        mask = torch.cat(masks)
        z1_kept = self.network.down(z1, mask)
        del z1, features  # the largest tensors of a long utterance
        codes = torch.split(self.network.quantize(z1_kept, mask, timeline), [int(own.sum()) for own in masks])
        if refiner:
            codes = tuple(map(refiner, map(torch.from_numpy, signals), codes, masks))
        model_id = self.model_id
        return [
            Encoded(own_codes.cpu().numpy(), own_mask.cpu().numpy(), signal.size, model_id, layout)
            for own_codes, own_mask, signal, layout in zip(codes, masks, signals, layouts, strict=True)
        ]

    def _select(
        self, signals: list[Samples], features: Sequence[Tensor], chosen: SelectorConfig, request: RateRequest
    ) -> tuple[list[Tensor], list[Layout]]:
        """Keep mask of each utterance, and the layout that it makes. features: (N, D or bands) each"""
        selector = self.network.selector if chosen == self.config.selector else build(chosen)
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
        elif selector is self.network.selector and not self.network.tau.isnan():
            return float(self.network.tau)
        else:
            target = max(1, round(self.config.keep_ratio * statistics.shape[0]))
        return calibrate(selector, [statistics], target).tau

    # Decoding

    def _check_mine(self, encoded: Encoded) -> None:
        if encoded.model_id != self.model_id:
            raise ModelError(f"encoded by model {encoded.model_id!r}; this is model {self.model_id!r}")
        if encoded.codes.max() >= self.config.quantizer.codebook_size:
            raise ModelError(f"code {encoded.codes.max()}; allowed: 0 ... {self.config.quantizer.codebook_size - 1}")
