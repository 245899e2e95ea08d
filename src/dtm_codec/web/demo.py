"""The demo: an upload is read once, then encoded at whatever bitrate the slider asks for."""

from __future__ import annotations

import base64
import contextlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import anyio.to_thread
from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect

from ..errors import AudioError
from ..plotting import local_token_rate
from ..speech.audio import Samples, audio_bytes, audio_info, read_audio, sample_path
from .live import LiveRoom
from .pictures import Spectrogram, spectrogram
from .rates import qualities, rate_range

if TYPE_CHECKING:
    from ..codec import DTMCodec

CLIPS_PATH = "/api/demo/clips"

MAX_CLIPS = 16
"""Uploads held in memory; the one used longest ago goes first."""

MAX_WAITING = 8
"""Requests that may wait for the model, and uploads to be read; more are asked to come again."""


@dataclass(frozen=True)
class Clip:
    audio: Samples
    """(T,) at the model's rate"""
    picture: Spectrogram


@dataclass(frozen=True)
class Heard:
    """What another codec made of a recording."""

    audio: Samples
    bits: int


@dataclass(frozen=True)
class OtherCodec:
    """A codec to compare with."""

    title: str
    round_trip: Callable[[Samples, int], Heard]
    """(T,) and their rate -> as many samples at that rate"""


class Demo:
    """The model behind the page. One encoding runs at a time: it uses every free core."""

    def __init__(
        self,
        codec: DTMCodec,
        max_seconds: float = 30.0,
        others: Mapping[str, OtherCodec] = MappingProxyType({}),
        live: DTMCodec | None = None,
    ) -> None:
        """others: codecs to compare with, by name. live: for calls, if it is another than that for recordings."""
        self.codec = codec
        self.others = others
        self.live = LiveRoom(live or codec)
        self.max_seconds = max_seconds
        self.max_bytes = round(max_seconds * 48_000 * 2 * 4) + 65_536  # 48 kHz stereo in float32, and headers
        self._clips: OrderedDict[str, Clip] = OrderedDict()
        self._lock = threading.Lock()
        self._encoding = anyio.CapacityLimiter(1)
        self._reading = anyio.CapacityLimiter(2)

    def describe(self) -> dict[str, Any]:
        config = self.codec.config
        return {
            "model_id": self.codec.model_id,
            "parameters": self.codec.num_parameters,
            "sample_rate": config.sample_rate,
            "frame_rate": config.frame_rate,
            "fixed_rate": config.is_fixed_rate,
            "bitrate": vars(rate_range(config, written=True)),
            "counts": "nominal" if config.is_fixed_rate else "written",
            "qualities": qualities(config),
            "trained": self.codec.trained_bitrates,
            "others": {name: other.title for name, other in self.others.items()},
            "live": self.live.describe(),
            "max_seconds": self.max_seconds,
            "max_bytes": self.max_bytes,
        }

    def add_clip(self, data: bytes) -> dict[str, Any]:
        """Read an upload; never decode more than is allowed."""
        duration_s = audio_info(data).duration_s
        if duration_s > self.max_seconds:
            raise AudioError(f"the audio lasts {duration_s:.1f} s; allowed: up to {self.max_seconds:g} s")
        return self._hold(data)

    def add_sample(self) -> dict[str, Any]:
        """The bundled recording, or as much of it as is allowed."""
        return self._hold(sample_path().read_bytes())

    def _hold(self, data: bytes) -> dict[str, Any]:
        frames = max(1, round(self.max_seconds * audio_info(data).sample_rate))
        sample_rate = self.codec.config.sample_rate
        audio, _ = read_audio(data, sample_rate, frames=frames)
        clip = Clip(audio, spectrogram(audio, sample_rate))
        name = secrets.token_hex(16)
        with self._lock:
            self._clips[name] = clip
            while len(self._clips) > MAX_CLIPS:
                self._clips.popitem(last=False)
        return {
            "id": name,
            "duration_s": audio.size / sample_rate,
            "spectrogram": _spectrogram_json(clip.picture),
            "audio": _base64(audio_bytes(audio, sample_rate)),
        }

    def clip(self, name: str) -> Clip | None:
        with self._lock:
            if name in self._clips:
                self._clips.move_to_end(name)
            return self._clips.get(name)

    def encode(self, clip: Clip, bitrate: float) -> dict[str, Any]:
        """Encode, write, decode, and count what it cost."""
        started = time.perf_counter()
        sample_rate = self.codec.config.sample_rate
        if self.codec.config.is_fixed_rate:
            encoded = self.codec.encode(clip.audio, sample_rate)
        else:
            encoded = self.codec.encode(clip.audio, sample_rate, bitrate=bitrate, written=True)
        file, info = encoded.to_file("compact", self.codec.token_model)
        decoded = self.codec.decode(encoded)
        bits, seconds = encoded.bits, encoded.duration_s
        return {
            "nominal": {"content": bits.content, "position": bits.position, "total": bits.total},
            "written": {
                "content": info.token_bits_written,
                "position": info.mask_bits,
                "total": info.token_bits_written + info.mask_bits,
            },
            "duration_s": seconds,
            "tokens": encoded.codes.size,
            "steps": encoded.mask.size,
            "token_rate": encoded.codes.size / seconds,
            "keep_ratio": encoded.codes.size / encoded.mask.size,
            "positions": encoded.positions.tolist(),
            "local_rate": local_token_rate(encoded.mask, self.codec.config.frame_rate).round(1).tolist(),
            "spectrogram": _spectrogram_json(spectrogram(decoded, sample_rate, clip.picture.peak_db)),
            "audio": _base64(audio_bytes(decoded, sample_rate)),
            "file": _base64(file),
            "seconds": time.perf_counter() - started,
        }

    def compare(self, clip: Clip, other: OtherCodec) -> dict[str, Any]:
        sample_rate = self.codec.config.sample_rate
        heard = other.round_trip(clip.audio, sample_rate)
        return {
            "title": other.title,
            "bps": heard.bits * sample_rate / clip.audio.size,
            "spectrogram": _spectrogram_json(spectrogram(heard.audio, sample_rate, clip.picture.peak_db)),
            "audio": _base64(audio_bytes(heard.audio, sample_rate)),
        }

    async def upload(self, request: Request) -> dict[str, Any]:
        """Receive a recording, then decode it when it is its turn: who sends slowly keeps nobody waiting."""
        data = await request.body()
        async with _turn(self._reading):
            return await anyio.to_thread.run_sync(self.add_clip, data)

    async def answer(self, request: Request, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Compute on a thread when it is this request's turn, unless the browser has gone."""
        async with _turn(self._encoding):
            if await request.is_disconnected():
                raise ClientDisconnect
            return await anyio.to_thread.run_sync(work)

    def held_clip(self, name: str) -> Clip:
        clip = self.clip(name)
        if clip is None:
            raise HTTPException(404, "this recording is no longer held; load it again")
        return clip


@contextlib.asynccontextmanager
async def _turn(limiter: anyio.CapacityLimiter) -> AsyncIterator[None]:
    """Wait for one of the limiter's places; refuse if too many wait already."""
    if limiter.statistics().tasks_waiting >= MAX_WAITING:
        raise HTTPException(503, "the server is busy; try again in a moment", headers={"Retry-After": "1"})
    async with limiter:
        yield


def _spectrogram_json(picture: Spectrogram) -> dict[str, Any]:
    columns, bins = picture.cells.shape
    return {"columns": columns, "bins": bins, "cells": _base64(picture.cells.tobytes())}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class EncodeRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    bitrate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class CompareRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    codec: str


def demo_routes(demo: Demo) -> APIRouter:
    router = APIRouter()

    @router.get("/api/demo")
    def describe() -> dict[str, Any]:
        return demo.describe()

    @router.post("/api/demo/sample", status_code=201)
    def sample() -> dict[str, Any]:
        return demo.add_sample()

    @router.post(CLIPS_PATH, status_code=201)
    async def upload(request: Request) -> Any:
        return await demo.upload(request)

    @router.post("/api/demo/clips/{name}/encodings")
    async def encode(name: str, wanted: EncodeRequest, request: Request) -> Any:
        return await demo.answer(request, partial(demo.encode, demo.held_clip(name), wanted.bitrate))

    @router.post("/api/demo/clips/{name}/comparisons")
    async def compare(name: str, wanted: CompareRequest, request: Request) -> Any:
        if wanted.codec not in demo.others:
            allowed = ", ".join(demo.others) or "none: neither Opus nor Codec2 is installed"
            raise HTTPException(422, f"codec {wanted.codec[:40]!r}; allowed: {allowed}")
        return await demo.answer(request, partial(demo.compare, demo.held_clip(name), demo.others[wanted.codec]))

    return router
