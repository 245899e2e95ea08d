"""The streams of a codec: speech to packets while it is being spoken, and back (docs/streaming.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ..backends.base import Backend
from ..config import CodecConfig
from ..errors import ModelError
from ..layout import Layout
from ..rate.request import RateRequest
from .latency import packet_steps
from .packets import StreamFormat
from .thinning import StreamThinner

if TYPE_CHECKING:
    from ..network import Network
    from .decoder import StreamDecoder
    from .encoder import StreamEncoder


class Streaming(ABC):
    """What `DTMCodec` does with streams. Encoder and decoder need torch, which keeps what its layers have seen."""

    backend: Backend

    @property
    @abstractmethod
    def network(self) -> Network: ...

    @property
    @abstractmethod
    def config(self) -> CodecConfig: ...

    @property
    @abstractmethod
    def model_id(self) -> str: ...

    @property
    @abstractmethod
    def layout(self) -> Layout: ...

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
        network = self.network  # first: without torch it says what to install
        from .encoder import StreamEncoder

        form = StreamFormat(self.model_id, self.layout, packet_steps(self.config, packet_ms))
        rate = self.config.sample_rate if sample_rate is None else sample_rate
        return StreamEncoder(network, form, RateRequest(bitrate, token_rate, tau), rate)

    def stream_decoder(self, start: bytes, *, wait: int = 0) -> StreamDecoder:
        """Packets to speech while they come in. start: `StreamEncoder.start` of the sender; wait: packets to hold back
        for one that is missing, before it is given up."""
        network = self.network  # first: without torch it says what to install
        from .decoder import StreamDecoder

        return StreamDecoder(network, self._stream_format(start), wait)

    def stream_thinner(
        self, start: bytes, *, bitrate: float | None = None, token_rate: float | None = None
    ) -> StreamThinner:
        """Packets to packets of a lower rate, without their audio. start: `StreamEncoder.start` of the sender"""
        return StreamThinner(self.backend.vectors(), self._stream_format(start), RateRequest(bitrate, token_rate))

    def _stream_format(self, start: bytes) -> StreamFormat:
        form = StreamFormat.from_start(start)
        if form.model_id != self.model_id:
            raise ModelError(f"a stream of model {form.model_id!r}; this is model {self.model_id!r}")
        if form.layout != self.layout:
            raise ModelError(f"a stream with {form.layout}; allowed: {self.layout}")
        return form
