"""Speech while it is being spoken: a microphone's samples to packets, some of them lost, and back to a loudspeaker.

A browser opens a WebSocket and says how it wants to be coded, then sends 16-bit samples as they come. For every packet
it gets a line of JSON about its bits, then the samples that are ready. Sample n of what it gets is sample n of what it
sent, so it can tell how long each took. When it says stop, it gets what is still under way, and the line is closed.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import anyio.to_thread
import numpy as np
from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from ..errors import DTMCodecError
from ..live.latency import PACKET_MS, latency_of
from ..models.hub import LIVE_MODEL
from ..rate.request import RateRequest
from ..speech.pipes import pcm_bytes
from .guard import SILENCE_SECONDS

if TYPE_CHECKING:
    from ..codec import DTMCodec

LIVE_PATH = "/api/demo/live"

MAX_CALLS = 3
"""At a time; each takes a good part of a core."""
MAX_SECONDS = 600.0
"""Of one call."""
LEAD_SECONDS = 2.0
"""Seconds of sound that may come early. A microphone brings one second of sound a second."""
MAX_MESSAGE = 1 << 16
"""Bytes: two thirds of a second at 48 kHz."""
MAX_LOSS = 0.5

_NORMAL, _REFUSED, _BUSY = 1000, 1008, 1013


class Wish(BaseModel):
    """What may be changed during a call."""

    model_config = ConfigDict(extra="forbid", strict=True)

    bitrate: Annotated[float | None, Field(gt=0, le=1e6, allow_inf_nan=False)] = None
    loss: Annotated[float | None, Field(ge=0, le=MAX_LOSS)] = None
    stop: bool = False


class Start(BaseModel):
    """The first message."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample_rate: Annotated[int, Field(ge=8_000, le=192_000)]
    bitrate: Annotated[float | None, Field(gt=0, le=1e6, allow_inf_nan=False)] = None
    loss: Annotated[float, Field(ge=0, le=MAX_LOSS)] = 0.0
    packet_ms: int = 80


class RefusedError(DTMCodecError):
    """What a client must not do."""


@dataclass(frozen=True)
class Sent:
    """One packet on its way, and what came out at the other end."""

    facts: dict[str, Any]
    samples: bytes


class Call:
    """Both ends of a stream, and the bad line between them."""

    def __init__(self, codec: DTMCodec, start: Start) -> None:
        bitrate = None if codec.config.is_fixed_rate else start.bitrate
        self._encoder = codec.stream_encoder(bitrate=bitrate, packet_ms=start.packet_ms, sample_rate=start.sample_rate)
        self._decoder = codec.stream_decoder(self._encoder.start)
        self._fixed_rate = codec.config.is_fixed_rate
        self._line = random.Random()
        self._packets = 0
        self.loss = start.loss

    def turn(self, wish: Wish) -> None:
        if wish.loss is not None:
            self.loss = wish.loss
        if wish.bitrate is not None and not self._fixed_rate:
            self._encoder.ask(RateRequest(wish.bitrate))

    def push(self, data: bytes) -> list[Sent]:
        return list(self._through(self._encoder.push(np.frombuffer(data, "<i2"))))

    def finish(self) -> list[Sent]:
        sent = list(self._through(self._encoder.flush()))
        return [*sent, Sent({"end": True}, pcm_bytes(self._decoder.flush()))]

    def _through(self, packets: list[bytes]) -> Iterator[Sent]:
        for data in packets:
            lost = self._line.random() < self.loss
            packet = self._encoder.format.read(data)
            samples = self._decoder.lost(1) if lost else self._decoder.push(data)
            facts = {
                "packet": self._packets,
                "bits": 8 * len(data),
                "tokens": int(packet.codes.size),
                "steps": int(packet.mask.size),
                "lost": lost,
            }
            self._packets += 1
            yield Sent(facts, pcm_bytes(samples))


class LiveRoom:
    """All calls of one server."""

    def __init__(self, codec: DTMCodec) -> None:
        self.codec = codec
        self.calls = 0

    @property
    def obstacle(self) -> str | None:
        """Why the model cannot be used live, and what to do about it."""
        if math.isinf(latency_of(self.codec.config).total):
            why = f"{self.codec.config.name!r} looks ahead without a limit, so no sound would come back while you speak"
            how = f"dtm-codec serve without --model takes {LIVE_MODEL!r}, where PyTorch is installed"
            return f"{why}. A live model has a limit: {how}"
        try:
            Call(self.codec, Start(sample_rate=self.codec.config.sample_rate))
        except DTMCodecError as error:
            return str(error)
        return None

    def describe(self) -> dict[str, Any]:
        obstacle = self.obstacle
        latency = None if obstacle else latency_of(self.codec.config).total
        return {"obstacle": obstacle, "latency_ms": latency, "packets_ms": PACKET_MS, "max_loss": MAX_LOSS}

    async def answer(self, socket: WebSocket) -> None:
        """Hold a call until one side ends it, or has had enough."""
        await socket.accept()
        if self.calls >= MAX_CALLS:
            await _goodbye(socket, _BUSY, f"{MAX_CALLS} calls are going on, which is the limit; try again later")
            return
        self.calls += 1
        try:
            await self._hold(socket)
            await _goodbye(socket, _NORMAL)
        except DTMCodecError as error:
            await _goodbye(socket, _REFUSED, str(error))
        except TimeoutError:
            await _goodbye(socket, _REFUSED, f"nothing was heard or taken for {SILENCE_SECONDS:g} s")
        except (WebSocketDisconnect, OSError):
            pass  # the page was closed
        finally:
            self.calls -= 1

    async def _hold(self, socket: WebSocket) -> None:
        first = await _receive(socket)
        if isinstance(first, bytes):
            raise RefusedError("samples before the first message; allowed: JSON with sample_rate")
        start = _parsed(Start, first)
        if self.obstacle:
            raise RefusedError(self.obstacle)
        call = Call(self.codec, start)
        latency = latency_of(self.codec.config).total + start.packet_ms
        await _send(socket, {"latency_ms": latency, "sample_rate": self.codec.config.sample_rate})
        began, heard = time.monotonic(), 0.0
        while True:
            message = await _receive(socket)
            if isinstance(message, str):
                wish = _parsed(Wish, message)
                if wish.stop:
                    break
                call.turn(wish)
                continue
            heard += _seconds(message, start.sample_rate)
            if heard > time.monotonic() - began + LEAD_SECONDS:
                raise RefusedError(f"{LEAD_SECONDS:g} s more sound than time went by; allowed: what a microphone hears")
            if heard > MAX_SECONDS:
                raise RefusedError(f"the call lasts {MAX_SECONDS:g} s, which is the limit")
            for sent in await anyio.to_thread.run_sync(call.push, message):
                await _send(socket, sent.facts, sent.samples)
        for sent in await anyio.to_thread.run_sync(call.finish):
            await _send(socket, sent.facts, sent.samples)


async def _receive(socket: WebSocket) -> bytes | str:
    """The next message; `TimeoutError` from one who says nothing."""
    with anyio.fail_after(SILENCE_SECONDS):
        message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", _NORMAL))
    content: bytes | str | None = message.get("bytes")
    return content if content is not None else str(message.get("text"))


async def _send(socket: WebSocket, facts: dict[str, Any], samples: bytes = b"") -> None:
    """`TimeoutError` from one who does not take it."""
    with anyio.fail_after(SILENCE_SECONDS):
        await socket.send_text(json.dumps(facts))
        if samples:
            await socket.send_bytes(samples)


async def _goodbye(socket: WebSocket, code: int, error: str | None = None) -> None:
    with anyio.move_on_after(1.0):
        try:
            if error is not None and socket.application_state == WebSocketState.CONNECTED:
                await socket.send_text(json.dumps({"error": error}))
            await socket.close(code)
        except (RuntimeError, OSError, WebSocketDisconnect):
            pass  # it has gone already


def _seconds(message: bytes, sample_rate: int) -> float:
    if not 0 < len(message) <= MAX_MESSAGE or len(message) % 2:
        raise RefusedError(f"{len(message)} bytes; allowed: 2 ... {MAX_MESSAGE}, two for each sample")
    return len(message) / 2 / sample_rate


def _parsed(kind: type[Any], text: str) -> Any:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RefusedError(f"{where or 'message'}: {first['msg']}") from None


def live_routes(room: LiveRoom) -> APIRouter:
    router = APIRouter()

    @router.websocket(LIVE_PATH)
    async def call(socket: WebSocket) -> None:
        await room.answer(socket)

    return router
