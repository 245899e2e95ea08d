"""DTMCodec: a network, and everything around it that turns speech into tokens and files, and back.

Utterances of any lengths are packed end to end, without padding. Long ones are coded in pieces, from and to disk, in
memory that does not grow with their length but for a few bytes a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import hub, piecewise
from .bitstream.token_coder import TokenModel
from .config import Bitrates, CodecConfig, SelectorConfig
from .encoded import Encoded, Layout, Mode
from .errors import ModelError, RateError
from .files import write_atomically
from .grouping import grouped
from .live.decoder import StreamDecoder
from .live.encoder import StreamEncoder
from .live.latency import packet_steps
from .live.packets import StreamFormat
from .live.thinning import StreamThinner
from .network import Network
from .piecewise import Sound, Stage1, Statistics
from .rate.calibration import calibrate
from .rate.request import Quality, RateRequest
from .rate.spending import Trial, spend
from .rate.thinning import thinned
from .refinement import Refiner, check_effort
from .selectors import Selector, build
from .selectors.stride import Stride
from .speech.audio import (
    Samples,
    Source,
    as_mono,
    audio_info,
    check_level,
    check_sample_rate,
    read_audio,
    resample,
    stream_audio,
)

OnProgress: TypeAlias = Callable[[float], None]
"""Is told how much is done, 0 ... 1."""

STAGE1_SHARE = 0.6
"""Of the time of encoding, for progress bars."""

DEFAULT_S_MAX = 4
"""Span limit of the segmenting selectors when the model's own selector has none (CodecSlime, VARSTok)."""


def _unwatched(done: float) -> None:
    """For callers who do not ask how much is done."""


def _after_stage1(on_progress: OnProgress, done: float) -> None:
    on_progress(STAGE1_SHARE + (1 - STAGE1_SHARE) * done)


class DTMCodec:
    """A speech codec whose tokens come where speech changes."""

    def __init__(self, config: CodecConfig) -> None:
        """Untrained; `from_pretrained` loads one that can be used."""
        self.network = Network(config).eval().requires_grad_(False)
        self.token_model: TokenModel | None = None
        """Statistics of tokens, for smaller files."""
        self.trained_bitrates: Bitrates | None = None
        """Total bits a second between which it was trained, where that is known."""
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
        quality: Quality | None = None,
        written: bool = False,
        selector: str | SelectorConfig | None = None,
        effort: int = 0,
        on_progress: OnProgress | None = None,
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
        quality: Quality | None = None,
        written: bool = False,
        selector: str | SelectorConfig | None = None,
        effort: int = 0,
        on_progress: OnProgress | None = None,
    ) -> Encoded: ...

    def encode(
        self,
        audio: list[Any] | tuple[Any, ...] | npt.NDArray[Any] | Tensor,
        sample_rate: int,
        *,
        bitrate: float | None = None,
        token_rate: float | None = None,
        tau: float | None = None,
        quality: Quality | None = None,
        written: bool = False,
        selector: str | SelectorConfig | None = None,
        effort: int = 0,
        on_progress: OnProgress | None = None,
    ) -> Encoded | list[Encoded]:
        """Speech to tokens.

        audio: one utterance as an array or tensor, (T,) or (channels, T), or a list or tuple of them.
        sample_rate: of the audio; it is resampled to the model's.
        bitrate: total bits a second, position bits included. PLE, greedy and DP meet it on each utterance to within one
        token where nothing in it is digitally silent, other selectors as nearly as they can; at a fixed rate it must be
        within 2 % of what the model has.
        token_rate: tokens a second. tau: the selector's own knob. quality: 'low', 'normal' or 'high', a bitrate by name
        (`rate/request.py`). Without any of the four, the tau of training.
        written: bitrate or quality count what a compact file holds, header aside, not what Eq. 5 counts. It is met from
        below within 1 % or two tokens, for two or three passes of Stage 2 (`rate/spending.py`).
        selector: another selector than the model's, by name or configuration.
        effort: how many other codes are tried for every token, to come nearer to the original (`refinement.py`);
        0 takes the encoder's own. Files and decoder are the same.
        on_progress: is told after each round of the search how much of all audio is done, 0 ... 1.
        """
        request = RateRequest(bitrate, token_rate, tau, quality, written)
        rounds = check_effort(effort)
        refiner = Refiner(self.network, rounds) if rounds else None
        check_sample_rate(sample_rate)
        chosen = self._selector_config(selector)
        utterances = audio if isinstance(audio, list | tuple) else [audio]
        signals = [resample(check_level(as_mono(x)), sample_rate, self.config.sample_rate) for x in utterances]
        if refiner and on_progress:
            refiner.watch(sum(self.layout.steps(x.size) for x in signals), on_progress)
        encoded = []
        most = 1 if written else self.network.piece  # what a file takes is sought for each by itself
        for group in grouped(signals, lambda x: self.layout.steps(x.size), most):
            sounds: list[Sound] = [partial(iter, [signal]) for signal in group]
            refine = partial(self._refined, group, refiner) if refiner else None
            encoded += self._encode_group(sounds, sum(x.size for x in group), chosen, request, refine=refine)
        return encoded if isinstance(audio, list | tuple) else encoded[0]

    def encode_file(
        self,
        source: Source,
        *,
        bitrate: float | None = None,
        token_rate: float | None = None,
        tau: float | None = None,
        quality: Quality | None = None,
        written: bool = False,
        selector: str | SelectorConfig | None = None,
        effort: int = 0,
        on_progress: OnProgress = _unwatched,
    ) -> Encoded:
        """The same for an audio file of any length, which is read block by block. on_progress: gets 0 ... 1

        With `effort`, its samples are held: the search goes back to them.
        """
        request = RateRequest(bitrate, token_rate, tau, quality, written)
        if check_effort(effort):
            audio, rate = read_audio(source, self.config.sample_rate)
            asked: dict[str, Any] = {"bitrate": bitrate, "token_rate": token_rate, "tau": tau, "quality": quality}
            asked |= {"written": written, "selector": selector, "effort": effort}
            return self.encode(audio, rate, **asked, on_progress=on_progress)
        chosen, rate, info = self._selector_config(selector), self.config.sample_rate, audio_info(source)
        samples = -(-info.num_samples * rate // info.sample_rate)
        return self._encode_group([partial(stream_audio, source, rate)], samples, chosen, request, on_progress)[0]

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
            signals = [np.empty(e.num_samples, np.float32) for e in group]
            filled = [0] * len(group)
            for index, block in self._synthesized(group):
                room = signals[index][filled[index] :]
                room[: block.size] = block[: room.size]
                filled[index] += block.size
            decoded += signals
        return decoded if isinstance(encoded, list | tuple) else decoded[0]

    @torch.inference_mode()
    def decode_blocks(self, encoded: Encoded) -> Iterator[Samples]:
        """What `decode` gives, block by block (T_i,) as it is synthesised: for audio that is too long to be held."""
        self._check_mine(encoded)
        left = encoded.num_samples
        for _, block in self._synthesized([encoded]):
            yield block[:left]
            left -= min(left, block.size)

    def _synthesized(self, group: list[Encoded]) -> Iterator[tuple[int, Samples]]:
        mask = self._tensor(np.concatenate([e.mask for e in group]))
        codes = self._tensor(np.concatenate([e.codes for e in group]))
        for index, block in piecewise.synthesize(self.network, codes, mask, tuple(e.mask.size for e in group)):
            yield index, block.cpu().numpy()

    @torch.inference_mode()
    def embed(self, encoded: Encoded) -> Tensor:
        """Quantized embeddings z2_hat of an utterance, as probes of its content use them. -> (K, D)"""
        self._check_mine(encoded)
        return self.network.quantizer.decode(self._tensor(encoded.codes))

    @torch.inference_mode()
    def stage1(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        """Stage-1 vectors z1 of one utterance, what the paper's selectors look at. -> (N, D)"""
        stage1 = self._stage1(audio, sample_rate)
        return torch.cat([rows.values for rows in stage1.compute()])

    @torch.inference_mode()
    def selector_statistics(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Tensor:
        """What the model's selector decides on, for one utterance. -> (N, C)"""
        statistics = Statistics(self.network.selector)
        self._stage1(audio, sample_rate).show(self.config.selector.features, statistics)
        return statistics.of_utterances()[0]

    def _stage1(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Stage1:
        signal = resample(as_mono(audio), check_sample_rate(sample_rate), self.config.sample_rate)
        return Stage1(self.network, [partial(iter, [signal])], self.layout.steps(signal.size))

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.network.tau.device)

    def thin(self, encoded: Encoded, *, bitrate: float | None = None, token_rate: float | None = None) -> Encoded:
        """The same utterance with fewer tokens, chosen without its audio."""
        self._check_mine(encoded)
        request = RateRequest(bitrate, token_rate)
        vectors = self.network.quantizer.vectors()
        stays = thinned(encoded.codes, vectors, encoded.num_samples, encoded.layout, request)
        mask = np.zeros_like(encoded.mask)
        mask[encoded.positions[stays]] = True
        return replace(encoded, codes=encoded.codes[stays], mask=mask)

    # Streams

    def stream_encoder(
        self,
        *,
        bitrate: float | None = None,
        token_rate: float | None = None,
        tau: float | None = None,
        packet_ms: float = 80,
        sample_rate: int | None = None,
    ) -> StreamEncoder:
        """Speech to packets while it is being spoken.

        bitrate, token_rate: held over any 2 s within 15 %. tau: the same throughout, so that the rate follows the
        speech. Without any of the three, the tau of training. packet_ms: 40, 80 or 160. sample_rate: of what will be
        pushed; the model's if not given.
        """
        form = StreamFormat(self.model_id, self.layout, packet_steps(self.config, packet_ms))
        rate = self.config.sample_rate if sample_rate is None else sample_rate
        return StreamEncoder(self.network, form, RateRequest(bitrate, token_rate, tau), rate)

    def stream_decoder(self, start: bytes, *, wait: int = 0) -> StreamDecoder:
        """Packets to speech while they come in. start: `StreamEncoder.start` of the sender; wait: packets to hold back
        for one that is missing, before it is given up."""
        return StreamDecoder(self.network, self._stream_format(start), wait)

    def stream_thinner(
        self, start: bytes, *, bitrate: float | None = None, token_rate: float | None = None
    ) -> StreamThinner:
        """Packets to packets of a lower rate, without their audio. start: `StreamEncoder.start` of the sender"""
        vectors, request = self.network.quantizer.vectors(), RateRequest(bitrate, token_rate)
        return StreamThinner(vectors, self._stream_format(start), request)

    def _stream_format(self, start: bytes) -> StreamFormat:
        form = StreamFormat.from_start(start)
        if form.model_id != self.model_id:
            raise ModelError(f"a stream of model {form.model_id!r}; this is model {self.model_id!r}")
        if form.layout != self.layout:
            raise ModelError(f"a stream with {form.layout}; allowed: {self.layout}")
        return form

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
        hub.fill(codec.network, loaded.tensors)
        codec.token_model, codec.trained_bitrates = loaded.token_model, loaded.bitrates
        codec.to(device)
        codec._identity = (codec._weights_version(), loaded.model_id)
        return codec

    def save_pretrained(self, folder: str | PathLike[str], dtype: torch.dtype = torch.float32) -> str:
        """Write weights, configuration and token statistics into `folder`; returns the model id of what was written."""
        return hub.save(self.network, self.token_model, folder, dtype, self.trained_bitrates)

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
        self,
        sounds: list[Sound],
        samples: int,
        chosen: SelectorConfig,
        request: RateRequest,
        on_progress: OnProgress = _unwatched,
        refine: Callable[[list[Encoded]], list[Encoded]] | None = None,
    ) -> list[Encoded]:
        """Encode a few short utterances, or one long one. samples: of all, as far as is known"""
        selector = self.network.selector if chosen == self.config.selector else build(chosen)
        steps = self.layout.steps(samples)
        stage1, statistics = Stage1(self.network, sounds, steps), Statistics(selector)
        stage1.show(chosen.features, statistics, lambda seen: on_progress(STAGE1_SHARE * min(1, seen / steps)))
        in_stage2 = partial(_after_stage1, on_progress)
        if not isinstance(selector, Stride):
            request = request.settled(self._layout(None), self.config.keep_ratio)
        if request.written and not isinstance(selector, Stride):
            return [self._spend(stage1, statistics.of_utterances()[0], selector, request, in_stage2, refine)]
        masks, layouts = self._select(stage1.num_samples, statistics.of_utterances(), selector, request)
        encoded = self._coded(stage1, masks, layouts, in_stage2)
        return encoded if refine is None else refine(encoded)

    def _spend(
        self,
        stage1: Stage1,
        statistics: Tensor,
        selector: Selector,
        request: RateRequest,
        on_progress: OnProgress,
        refine: Callable[[list[Encoded]], list[Encoded]] | None,
    ) -> Encoded:
        """One utterance with as many tokens as its file may hold. statistics: (N, C)"""
        layout, passes = self._layout(None), 0

        def attempt(tokens: int, refined: bool = False) -> Trial[Encoded]:
            nonlocal passes
            mask = selector.keep(statistics, calibrate(selector, [statistics], tokens).tau)
            left = 0.5**passes  # each pass takes half of what is left of the bar: nobody knows how many there will be
            encoded = self._coded(stage1, [mask], [layout], lambda done: on_progress(1 - left * (1 - done / 2)))
            passes += 1
            encoded = refine(encoded) if refined and refine is not None else encoded
            info = encoded[0].to_file("compact", self.token_model).info
            spent = info.mask_bits + info.token_bits_written
            return Trial(encoded[0], info.tokens, spent, info.token_bits_written)

        cost = layout.token_bits if self.token_model is None else self.token_model.mean_bits
        limits = request, stage1.num_samples[0], layout, selector.s_max, cost
        found = spend(*limits, attempt)
        # Other codes take other bits. A search through the decoder is slow, so it begins where it would end without.
        return (found if refine is None else spend(*limits, partial(attempt, refined=True), found.tokens)).result

    def _coded(
        self, stage1: Stage1, masks: list[Tensor], layouts: list[Layout], on_progress: OnProgress
    ) -> list[Encoded]:
        """Stage 2 on the kept steps."""
        mask = torch.cat(masks)
        lengths = tuple(own.numel() for own in masks)
        codes, filled = np.empty(int(mask.sum()), np.int64), 0
        for own_codes in piecewise.quantize(self.network, stage1.again(), mask, lengths):
            codes[filled : filled + own_codes.numel()] = own_codes.cpu().numpy()
            filled += own_codes.numel()
            on_progress(filled / codes.size)
        ends, model_id = np.cumsum([int(own.sum()) for own in masks])[:-1], self.model_id
        return [
            Encoded(own_codes, own_mask.cpu().numpy(), size, model_id, layout)
            for own_codes, own_mask, size, layout in zip(
                np.split(codes, ends), masks, stage1.num_samples, layouts, strict=True
            )
        ]

    def _refined(self, signals: list[Samples], refiner: Refiner, encoded: list[Encoded]) -> list[Encoded]:
        refined = []
        for signal, own in zip(signals, encoded, strict=True):
            codes = refiner(torch.from_numpy(signal), self._tensor(own.codes), self._tensor(own.mask))
            refined.append(replace(own, codes=codes.cpu().numpy()))
        return refined

    def _select(
        self, num_samples: list[int], statistics: list[Tensor], selector: Selector, request: RateRequest
    ) -> tuple[list[Tensor], list[Layout]]:
        """Keep mask of each utterance, and the layout that it makes. statistics: (N, C) each"""
        masks, layouts = [], []
        for size, own_statistics in zip(num_samples, statistics, strict=True):
            tau = self._tau(selector, own_statistics, size, request)
            masks.append(selector.keep(own_statistics, tau))
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
        self.check_layout(encoded.layout)
        if encoded.codes.max() >= self.config.quantizer.codebook_size:
            raise ModelError(f"code {encoded.codes.max()}; allowed: 0 ... {self.config.quantizer.codebook_size - 1}")

    def check_layout(self, layout: Layout) -> None:
        """Refuse a stream that this model cannot have made, whatever model it names."""
        mine = self._layout(self.config.stride if self.config.downsampler == "conv" else layout.stride)
        for name, value in asdict(layout).items():
            if value != getattr(mine, name):
                raise ModelError(f"{name} = {value} in the file; model {self.model_id!r} has {getattr(mine, name)}")
