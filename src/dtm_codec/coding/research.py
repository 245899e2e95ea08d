"""What researchers ask of a codec beside speech and files: features, vectors of codes, padded batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from ..backends.base import Backend, Floats
from ..config import CodecConfig, Quality, SelectorConfig
from ..encoded import Encoded
from ..layout import Layout
from ..speech.audio import as_speech
from . import chain
from .chain import Stage1
from .selection import Statistics

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Unpack  # of typing from Python 3.11 on

    from ..batches import AudioBatch, TokenBatch


class EncodeOptions(TypedDict, total=False):
    """What `DTMCodec.encode` can be asked for, by name; its relatives hand it on."""

    bitrate: float | None
    token_rate: float | None
    tau: float | None
    quality: Quality | None
    written: bool
    selector: str | SelectorConfig | None
    effort: int


class Features(NamedTuple):
    """What the encoder knows of an utterance before it quantizes (z1 and z2 of Eq. 1).

    z1[encoded.mask] are the vectors that Stage 2 was given, `encoded.times` says when they stand.
    """

    z1: Floats
    """(N, D) Stage 1, every step."""
    z2: Floats
    """(K, D) Stage 2, kept steps, before the quantizer."""
    encoded: Encoded
    """Mask and codes that go with them."""


class Research(ABC):
    """A part of `DTMCodec`. Padded batches need torch."""

    backend: Backend

    @property
    @abstractmethod
    def config(self) -> CodecConfig: ...

    @property
    @abstractmethod
    def layout(self) -> Layout: ...

    @abstractmethod
    def encode(self, *args: Any, **kwargs: Any) -> Any: ...

    @abstractmethod
    def decode(self, *args: Any, **kwargs: Any) -> Any: ...

    @abstractmethod
    def _check_mine(self, encoded: Encoded) -> None: ...

    def embed(self, encoded: Encoded) -> Floats:
        """Quantized embeddings z2_hat of an utterance, as probes of its content use them. -> (K, D)"""
        self._check_mine(encoded)
        return self.backend.dequantize(encoded.codes)

    def stage1(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Floats:
        """Stage-1 vectors z1 of one utterance, what the paper's selectors look at. -> (N, D)"""
        return np.concatenate([rows.values for rows in self._stage1(audio, sample_rate).compute()])

    def selector_statistics(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Floats:
        """What the model's selector decides on, for one utterance. -> (N, C)"""
        statistics = Statistics(self.backend.selector)
        self._stage1(audio, sample_rate).show(self.config.selector.features, statistics)
        return statistics.of_utterances()[0]

    def _stage1(self, audio: npt.NDArray[Any] | Tensor, sample_rate: int) -> Stage1:
        signal = as_speech(audio, sample_rate, self.config.sample_rate)
        return Stage1(self.backend, [partial(iter, [signal])], self.layout.steps(signal.size))

    @property
    def codebook(self) -> Floats:
        """What each code stands for, before it is projected to the network's width. -> (V, d)"""
        return self.backend.vectors()

    def features(
        self, audio: npt.NDArray[Any] | Tensor, sample_rate: int, **options: Unpack[EncodeOptions]
    ) -> Features:
        """z1 at every step and z2 at the kept ones, before it is quantized, of one utterance. options: of `encode`"""
        encoded: Encoded = self.encode(audio, sample_rate, **options)
        z1 = self.stage1(audio, sample_rate)
        z2 = np.concatenate(list(chain.stage2(self.backend, [z1], encoded.mask, [len(z1)])))
        return Features(z1, z2, encoded)

    def encode_batch(
        self,
        audio: Tensor,
        lengths: Tensor | None = None,
        *,
        sample_rate: int | None = None,
        **options: Unpack[EncodeOptions],
    ) -> TokenBatch:
        """A padded batch of speech to a padded batch of tokens, each utterance as if it were alone.

        audio: (B, T) or (B, 1, T). lengths: (B,) samples of each; without it, all are T long. sample_rate: of the
        audio; the model's if not given. options: of `encode`
        """
        from ..batches import TokenBatch, signals

        rate = self.config.sample_rate if sample_rate is None else sample_rate
        return TokenBatch.from_encoded(self.encode(signals(audio, lengths), rate, **options)).to(audio.device)

    def decode_batch(self, batch: TokenBatch) -> AudioBatch:
        """The other way: audio (B, 1, T_max) at the model's rate, and how many samples of each row are speech."""
        from ..batches import padded_audio

        return padded_audio(self.decode(batch.to_encoded()), batch.codes.device)
