"""What researchers ask of a codec beside speech and files: features, vectors of codes, padded batches, the hub."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from ..backends.base import Backend, Floats
from ..config import Bitrates, CodecConfig, Quality, SelectorConfig
from ..encoded import Encoded
from ..models import sharing
from ..speech.audio import as_speech
from . import piecewise
from .piecewise import Stage1

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Unpack  # of typing from Python 3.11 on

    from ..batches import AudioBatch, TokenBatch
    from ..bitstream.token_coder import TokenModel


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
    token_model: TokenModel | None
    trained_bitrates: Bitrates | None

    @property
    @abstractmethod
    def config(self) -> CodecConfig: ...

    @property
    @abstractmethod
    def num_parameters(self) -> int: ...

    @abstractmethod
    def encode(self, *args: Any, **kwargs: Any) -> Any: ...

    @abstractmethod
    def decode(self, *args: Any, **kwargs: Any) -> Any: ...

    @abstractmethod
    def save_pretrained(self, *args: Any, **kwargs: Any) -> str: ...

    @property
    def codebook(self) -> Floats:
        """What each code stands for, before it is projected to the network's width. -> (V, d)"""
        return self.backend.vectors()

    def features(
        self, audio: npt.NDArray[Any] | Tensor, sample_rate: int, **options: Unpack[EncodeOptions]
    ) -> Features:
        """z1 at every step and z2 at the kept ones, before it is quantized, of one utterance. options: of `encode`"""
        encoded: Encoded = self.encode(audio, sample_rate, **options)
        signal = as_speech(audio, sample_rate, self.config.sample_rate)
        stage1 = Stage1(self.backend, [partial(iter, [signal])], encoded.mask.size)
        z1 = np.concatenate([rows.values for rows in stage1.compute()])
        z2 = np.concatenate(list(piecewise.stage2(self.backend, [z1], encoded.mask, [len(z1)])))
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

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        license: str | None = None,
        notes: str = "",
        commit_message: str = "A DTM-Codec",
        api: Any = None,
    ) -> str:
        """Upload to the Hugging Face hub, where `from_pretrained(repo_id)` finds it; returns the commit's address.

        license, notes: for the model card, such as 'cc-by-4.0' and what it was trained on, in Markdown. A card that is
        there already stays. api: a `huggingface_hub.HfApi` of your own
        """

        def write(folder: str) -> str:
            model_id = self.save_pretrained(folder, transformers=True)
            return sharing.model_card(
                self.config,
                repo_id,
                model_id=model_id,
                parameters=self.num_parameters,
                bitrates=self.trained_bitrates,
                has_statistics=self.token_model is not None,
                license=license,
                notes=notes,
            )

        return sharing.push(repo_id, write, private=private, token=token, message=commit_message, api=api)
