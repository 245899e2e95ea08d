"""DTMCodec: a network, and everything around it that turns speech into tokens and files, and back.

Utterances of any lengths are packed end to end, without padding. Long ones are coded in pieces, from and to disk, in
memory that does not grow with their length but for a few bytes a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from .backends import load_backend, torch_network, untrained
from .backends.base import Backend, Mask
from .bitstream.claims import ClaimLimit
from .bitstream.container import MAX_BYTES
from .bitstream.token_coder import TokenModel
from .coding import chain
from .coding.chain import Sound, Stage1
from .coding.grouping import grouped
from .coding.research import EncodeOptions, Research
from .coding.selection import (
    Choice,
    OnProgress,
    Refine,
    Statistics,
    layout_of,
    selector_config,
    tell_part,
    unwatched,
)
from .config import BackendName, Bitrates, CodecConfig, Quality, SelectorConfig
from .encoded import Encoded, Mode
from .errors import ModelError
from .layout import Layout
from .live.streams import Streaming
from .models import hub
from .models.sharing import Sharing
from .models.weights import num_parameters
from .rate.request import RateRequest, check_effort
from .rate.thinning import thinned
from .speech.audio import (
    Samples,
    Source,
    as_speech,
    audio_info,
    check_sample_rate,
    read_audio,
    stream_audio,
)
from .system.files import read_regular, write_atomically

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from typing_extensions import Unpack  # of typing from Python 3.11 on

    from .coding.refinement import Refiner
    from .network import Network

STAGE1_SHARE = 0.6
"""Of the time of encoding, for progress bars."""

_STORAGE_OF_DTYPE: dict[str, hub.StoredAs] = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class DTMCodec(Streaming, Research, Sharing):
    """A speech codec whose tokens come where speech changes."""

    def __init__(self, model: CodecConfig | Backend) -> None:
        """`from_pretrained` loads one that can be used; a configuration alone gives an untrained one, in torch."""
        self.backend = untrained(model) if isinstance(model, CodecConfig) else model
        """What computes: PyTorch or onnxruntime."""
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
        on_progress: OnProgress | None = None,
        **options: Unpack[EncodeOptions],
    ) -> list[Encoded]: ...

    @overload
    def encode(
        self,
        audio: npt.NDArray[Any] | Tensor,
        sample_rate: int,
        *,
        on_progress: OnProgress | None = None,
        **options: Unpack[EncodeOptions],
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
        effort: how many other codes are tried for every token, to come nearer to the original (`coding/refinement.py`);
        0 takes the encoder's own. Files and decoder are the same.
        on_progress: is told how much of all audio is done, 0 ... 1; with `effort`, after each round of the search.
        """
        request = RateRequest(bitrate, token_rate, tau, quality, written)
        rounds = check_effort(effort)
        refiner = self._refiner(rounds) if rounds else None
        check_sample_rate(sample_rate)
        chosen = selector_config(self.config, selector)
        utterances = audio if isinstance(audio, list | tuple) else [audio]
        signals = [as_speech(x, sample_rate, self.config.sample_rate) for x in utterances]
        steps = sum(self.layout.steps(x.size) for x in signals)
        tell = on_progress or unwatched
        if refiner:
            refiner.watch(steps, tell)
            tell = unwatched
        encoded: list[Encoded] = []
        done = 0
        most = 1 if written else self.backend.piece  # what a file takes is sought for each by itself
        for group in grouped(signals, lambda x: self.layout.steps(x.size), most):
            sounds: list[Sound] = [partial(iter, [signal]) for signal in group]
            refine = partial(self._refined, group, refiner) if refiner else None
            own, size = sum(self.layout.steps(x.size) for x in group), sum(x.size for x in group)
            told = partial(tell_part, tell, done / steps, own / steps)
            encoded += self._encode_group(sounds, size, chosen, request, told, refine)
            done += own
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
        on_progress: OnProgress = unwatched,
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
        chosen, rate, info = selector_config(self.config, selector), self.config.sample_rate, audio_info(source)
        samples = -(-info.num_samples * rate // info.sample_rate)
        return self._encode_group([partial(stream_audio, source, rate)], samples, chosen, request, on_progress)[0]

    @overload
    def decode(self, encoded: list[Encoded] | tuple[Encoded, ...]) -> list[Samples]: ...

    @overload
    def decode(self, encoded: Encoded) -> Samples: ...

    def decode(self, encoded: Encoded | list[Encoded] | tuple[Encoded, ...]) -> Samples | list[Samples]:
        """Tokens to speech: float32 at the model's sample rate, exactly as many samples as were encoded."""
        batch = encoded if isinstance(encoded, list | tuple) else [encoded]
        for e in batch:
            self._check_mine(e)
        decoded = []
        for group in grouped(batch, lambda e: e.mask.size, self.backend.piece):
            signals = [np.empty(e.num_samples, np.float32) for e in group]
            filled = [0] * len(group)
            for index, block in self._synthesized(group):
                room = signals[index][filled[index] :]
                room[: block.size] = block[: room.size]
                filled[index] += block.size
            decoded += signals
        return decoded if isinstance(encoded, list | tuple) else decoded[0]

    def decode_blocks(self, encoded: Encoded) -> Iterator[Samples]:
        """What `decode` gives, block by block (T_i,) as it is synthesised: for audio that is too long to be held."""
        self._check_mine(encoded)
        left = encoded.num_samples
        for _, block in self._synthesized([encoded]):
            yield block[:left]
            left -= min(left, block.size)

    def _synthesized(self, group: list[Encoded]) -> Iterator[tuple[int, Samples]]:
        mask, codes = (np.concatenate([getattr(e, name) for e in group]) for name in ("mask", "codes"))
        return chain.synthesize(self.backend, codes, mask, [e.mask.size for e in group])

    def thin(self, encoded: Encoded, *, bitrate: float | None = None, token_rate: float | None = None) -> Encoded:
        """The same utterance with fewer tokens, chosen without its audio."""
        self._check_mine(encoded)
        request = RateRequest(bitrate, token_rate)
        stays = thinned(encoded.codes, self.backend.vectors(), encoded.num_samples, encoded.layout, request)
        mask = np.zeros_like(encoded.mask)
        mask[encoded.positions[stays]] = True
        return replace(encoded, codes=encoded.codes[stays], mask=mask)

    # Files

    def to_bytes(self, encoded: Encoded, mode: Mode = "compact") -> bytes:
        """The `.dtm` file of an utterance; compact ones are packed with this model's token statistics."""
        return encoded.to_bytes(mode, self.token_model)

    def from_bytes(self, data: bytes, *, max_hours: float | None = None) -> Encoded:
        """Read a `.dtm` file of this model. One that claims to last longer than its size makes likely
        (`bitstream/claims.py`), or than `max_hours` if given, is refused."""
        encoded = Encoded.from_bytes(data, self.token_model, ClaimLimit(max_hours))
        self._check_mine(encoded)
        return encoded

    def save(self, encoded: Encoded, path: str | PathLike[str], mode: Mode = "compact") -> None:
        """Write a `.dtm` file under a temporary name, then rename it."""
        write_atomically(path, self.to_bytes(encoded, mode))

    def load(self, path: str | PathLike[str], *, max_hours: float | None = None) -> Encoded:
        return self.from_bytes(read_regular(path, MAX_BYTES), max_hours=max_hours)

    # Models as folders

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | PathLike[str] = hub.DEFAULT_MODEL,
        device: str = "cpu",
        backend: BackendName | None = None,
    ) -> DTMCodec:
        """Load a bundled model by name, a folder, a hub id 'owner/name[@revision]', or 'random:PRESET' (untrained).

        backend: what it computes with. 'torch' and 'onnx' give the same tokens; 'onnx-int8' multiplies in 8 bits,
        twice as fast, and gives others. Without it: torch if it is installed, else 'onnx-int8'.
        """
        return cls.from_loaded(hub.load(name_or_folder), device, backend)

    @classmethod
    def from_loaded(cls, loaded: hub.LoadedModel, device: str = "cpu", backend: BackendName | None = None) -> DTMCodec:
        """The codec of a model that was read before."""
        codec = cls(load_backend(loaded, device, backend))
        if loaded.tensors is not None:
            codec.token_model, codec.trained_bitrates = loaded.token_model, loaded.bitrates
            codec._identity = (codec.backend.version(), loaded.model_id)
        return codec

    def save_pretrained(
        self, folder: str | PathLike[str], dtype: torch.dtype | str = "float32", *, transformers: bool = False
    ) -> str:
        """Write weights, configuration and token statistics into `folder`; returns the model id of what was written.

        dtype: 'float32', 'float16' or 'bfloat16', or torch's of that name.
        transformers: add what `AutoModel.from_pretrained(folder, trust_remote_code=True)` needs.
        """
        stored = _STORAGE_OF_DTYPE.get(str(dtype).removeprefix("torch."))
        if stored is None:
            raise ModelError(f"dtype = {dtype!r}; allowed: {', '.join(_STORAGE_OF_DTYPE)}")
        weights, bitrates = self.backend.weights(), self.trained_bitrates
        return hub.save(self.config, weights, self.token_model, folder, stored, bitrates, transformers=transformers)

    def to(self, device: str | torch.device) -> DTMCodec:
        self.backend.to(str(device))
        return self

    @property
    def network(self) -> Network:
        """The network in torch. A codec that computes with anything else has none."""
        return torch_network(self.backend)

    @property
    def config(self) -> CodecConfig:
        return self.backend.config

    @property
    def model_id(self) -> str:
        """Name and fingerprint of the weights, as in 's-vfr-50:1f3a5c7e'. Files carry it; only this model decodes
        them."""
        version = self.backend.version()
        if self._identity[0] != version:
            self._identity = (version, hub.model_id_of(self.config, self.backend.weights()))
        return self._identity[1]

    @property
    def layout(self) -> Layout:
        """How this model's streams are laid out with its own selector."""
        return self.config.layout

    @property
    def num_parameters(self) -> int:
        return num_parameters(self.config)

    # Encoding

    def _encode_group(
        self,
        sounds: list[Sound],
        samples: int,
        chosen: SelectorConfig,
        request: RateRequest,
        on_progress: OnProgress = unwatched,
        refine: Refine | None = None,
    ) -> list[Encoded]:
        """Encode a few short utterances, or one long one. samples: of all, as far as is known"""
        steps, choice = self.layout.steps(samples), Choice(self.backend, chosen, request)
        stage1, statistics = Stage1(self.backend, sounds, steps), Statistics(choice.selector)
        stage1.show(choice.features, statistics, lambda seen: on_progress(STAGE1_SHARE * min(1, seen / steps)))
        in_stage2 = partial(tell_part, on_progress, STAGE1_SHARE, 1 - STAGE1_SHARE)
        if choice.is_written:
            code = partial(self._coded, stage1)
            own, size = statistics.of_utterances()[0], stage1.num_samples[0]
            return choice.spend(size, own, self.token_model, code, in_stage2, refine)
        masks, layouts = choice.masks(stage1.num_samples, statistics.of_utterances())
        encoded = self._coded(stage1, masks, layouts, in_stage2)
        return encoded if refine is None else refine(encoded)

    def _coded(
        self, stage1: Stage1, masks: list[Mask], layouts: list[Layout], on_progress: OnProgress
    ) -> list[Encoded]:
        """Stage 2 on the kept steps."""
        mask = np.concatenate(masks)
        codes, filled = np.empty(int(mask.sum()), np.int64), 0
        for own_codes in chain.quantize(self.backend, stage1.again(), mask, [own.size for own in masks]):
            codes[filled : filled + own_codes.size] = own_codes
            filled += own_codes.size
            on_progress(filled / codes.size)
        ends, model_id = np.cumsum([int(own.sum()) for own in masks])[:-1], self.model_id
        return [
            Encoded(own_codes, own_mask, size, model_id, layout)
            for own_codes, own_mask, size, layout in zip(
                np.split(codes, ends), masks, stage1.num_samples, layouts, strict=True
            )
        ]

    def _refiner(self, rounds: int) -> Refiner:
        network = self.network  # first: without torch it says what to install
        from .coding.refinement import Refiner

        return Refiner(network, rounds)

    def _refined(self, signals: list[Samples], refiner: Refiner, encoded: list[Encoded]) -> list[Encoded]:
        return [
            replace(own, codes=refiner.better_codes(signal, own.codes, own.mask))
            for signal, own in zip(signals, encoded, strict=True)
        ]

    # Decoding

    def _check_mine(self, encoded: Encoded) -> None:
        if encoded.model_id != self.model_id:
            raise ModelError(f"encoded by model {encoded.model_id!r}; this is model {self.model_id!r}")
        self.check_layout(encoded.layout)
        if encoded.codes.max() >= self.config.quantizer.codebook_size:
            raise ModelError(f"code {encoded.codes.max()}; allowed: 0 ... {self.config.quantizer.codebook_size - 1}")

    def check_layout(self, layout: Layout) -> None:
        """Refuse a stream that this model cannot have made, whatever model it names."""
        mine = layout_of(self.config, self.config.stride if self.config.downsampler == "conv" else layout.stride)
        for name, value in asdict(layout).items():
            if value != getattr(mine, name):
                raise ModelError(f"{name} = {value} in the file; model {self.model_id!r} has {getattr(mine, name)}")
