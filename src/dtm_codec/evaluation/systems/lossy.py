"""Codecs whose packets get lost on the way: `lossy:SYSTEM?loss=10&burst=160&conceal=mask`, with SYSTEM's own options.

loss: percent of slots of 40 ms that are lost. burst: longest burst in ms; without it, single slots at random. Every
system loses the same slots of an utterance. What it then does:

dtm       conceal=mask (default): lost tokens are masked steps. zero: silence where a slot was lost. repeat: the token
          before the loss stands in for every lost slot.
opus      libopus conceals, with in-band redundancy where the encoder has sent it (not at 6 kbps)
codec2    the frame before the loss is repeated
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoded import Encoded
from ...errors import ConfigError
from ...live.latency import packet_steps
from ...live.losses import draw_losses
from ...live.packets import Packet, StreamFormat
from ...metrics.base import SAMPLE_RATE, Last
from ...specs import Spec, positive_number
from ...speech.audio import Samples, resample
from ...speech.pcm import from_pcm
from .base import Coded, System, fit
from .ours import DTM
from .programs import Codec2, Opus, ProgramError, ogg_packets, run

SLOT_MS = 40
SLOT = SLOT_MS * SAMPLE_RATE // 1000
CONCEALMENTS = ("mask", "zero", "repeat")

Lost = npt.NDArray[np.bool_]
"""(slots,) True = lost"""


class Lossy(System):
    inner: System

    def __init__(self, spec: Spec) -> None:
        from . import build

        if spec.argument is None:
            raise ConfigError("lossy: which system? allowed: lossy:dtm:MODEL, lossy:opus:KBPS, lossy:codec2:MODE")
        own = {key: spec.options[key] for key in ("loss", "burst", "conceal") if key in spec.options}
        rest = {key: value for key, value in spec.options.items() if key not in own}
        inner = replace(Spec.parse(spec.argument), options=rest)
        self._encode_once: Callable[[Samples], Coded] = self.encode
        if inner.kind == "dtm":
            self.inner, self._encode_once, self._play_once = _ours(inner.text)
        else:
            self.inner = build(inner.text)
        self.loss = _percent(own.get("loss", "0"))
        self.burst = round(positive_number(own.get("burst", str(SLOT_MS)), "lossy: burst"))
        self.conceal = own.get("conceal", "mask")
        self._conceal: Callable[[Coded, Lost], Samples]
        if isinstance(self.inner, DTM):
            if self.conceal not in CONCEALMENTS:
                raise ConfigError(f"lossy: conceal = {self.conceal!r}; allowed: {', '.join(CONCEALMENTS)}")
            self._conceal = self._decode_ours
        elif isinstance(self.inner, Opus | Codec2) and "conceal" not in own:
            self._conceal = self._decode_opus if isinstance(self.inner, Opus) else self._decode_codec2
        else:
            raise ConfigError(f"lossy:{spec.argument}; allowed: dtm:MODEL with conceal, opus:KBPS, codec2:MODE")
        if isinstance(self.inner, Opus) and self.loss:
            self.inner.encoder += ["--expect-loss", f"{self.loss:g}"]
        self.name = spec.text
        bursts = f" in bursts of up to {self.burst} ms" if self.burst > SLOT_MS else ""
        filled = f", {self.conceal}" if isinstance(self.inner, DTM) else ""
        self.title = f"{self.inner.title}, {self.loss:g} % lost{bursts}{filled}"
        self.series = f"{self.inner.series} with losses"

    @property
    def identity(self) -> str:
        return f"{self.inner.identity}, losses 2"

    @property
    def parameters(self) -> int | None:
        return self.inner.parameters

    def to(self, device: str) -> Lossy:
        self.inner = self.inner.to(device)
        return self

    def round_trip(self, audio: Samples, utterance: str) -> tuple[Coded, Samples]:
        coded = self._encode_once(audio)
        return coded, self.decode(coded)

    def encode(self, audio: Samples) -> Coded:
        return self.inner.encode(audio)

    def decode(self, coded: Coded) -> Samples:
        return fit(self._conceal(coded, self.lost_slots(coded.num_samples)), coded.num_samples)

    def lost_slots(self, num_samples: int) -> Lost:
        """Drawn from the length of the utterance, so that all systems lose the same."""
        draw = np.random.default_rng((num_samples, round(1000 * self.loss), self.burst))
        slots = -(-num_samples // SLOT)
        return draw_losses(slots, self.loss / 100, max(1, self.burst // SLOT_MS), draw)

    def _decode_ours(self, coded: Coded, lost: Lost) -> Samples:
        samples = self._play_once(coded, lost.tobytes(), "repeat" if self.conceal == "repeat" else "mask")
        if self.conceal == "zero":
            samples = np.where(np.repeat(lost, SLOT)[: samples.size], np.float32(0), samples)
        return samples

    def _decode_codec2(self, coded: Coded, lost: Lost) -> Samples:
        codec2 = self.inner
        assert isinstance(codec2, Codec2)
        size = -(-codec2.frame_bits // 8)
        frames = [coded.payload[i : i + size] for i in range(0, len(coded.payload), size)]
        for i in range(1, len(frames)):
            if _in_lost_slot(i * codec2.frame / SAMPLE_RATE, lost):
                frames[i] = frames[i - 1]
        samples = from_pcm(run(codec2.package, codec2.decoder, b"".join(frames)))
        return resample(samples, codec2.rate, SAMPLE_RATE)[codec2.delay :]

    def _decode_opus(self, coded: Coded, lost: Lost) -> Samples:
        head, _, *packets = ogg_packets(coded.payload)
        skip = int.from_bytes(head[10:12], "little") * SAMPLE_RATE // 48_000
        frame = SAMPLE_RATE // 50
        received: list[bytes | None] = [
            None if _in_lost_slot(i * frame / SAMPLE_RATE, lost) else packet for i, packet in enumerate(packets)
        ]
        return decode_opus(received, frame)[skip:]


@lru_cache(maxsize=1)
def _ours(text: str) -> tuple[DTM, Last[Coded], Last[Samples]]:
    """Our codec, what it encodes an utterance to, and what it plays of that: systems that differ in their losses alone
    share the first two, and those with the same losses may share the third."""
    system = DTM(Spec.parse(text))
    return system, Last(system.encode), Last(partial(_play, system))


def _play(system: DTM, coded: Coded, losses: bytes, conceal: str) -> Samples:
    """What a stream decoder makes of the packets that arrive. losses: of the slots; conceal: mask or repeat"""
    codec, encoded, lost = system.codec, coded.payload, np.frombuffer(losses, np.bool_)
    assert isinstance(encoded, Encoded)
    form = StreamFormat(encoded.model_id, encoded.layout, packet_steps(codec.config, SLOT_MS))
    decoder = codec.stream_decoder(form.start)
    seconds = form.steps / form.layout.frame_rate  # a packet is a slot only where 40 ms are whole steps
    played: list[Samples] = []
    before = np.zeros(0, np.int64)
    for packet in form.split(encoded.mask, encoded.codes, encoded.num_samples):
        gone = _in_lost_slot(len(played) * seconds, lost)
        if gone and conceal == "repeat" and before.size:
            played.append(decoder.push(form.write(_repeating(before, packet, form))))
        elif gone:
            played.append(decoder.lost())
        else:
            played.append(decoder.push(form.write(packet)))
            before = packet.codes[-1:] if packet.codes.size else before
    played.append(decoder.flush())  # where the last packet is lost
    return resample(np.concatenate(played), codec.config.sample_rate, SAMPLE_RATE)[: coded.num_samples]


def _in_lost_slot(seconds: float, lost: Lost) -> bool:
    """Whether a packet that begins then is lost; what lies behind the utterance goes with its last slot."""
    return bool(lost[min(int(1000 * seconds / SLOT_MS + 1e-6), lost.size - 1)])


def _repeating(token: npt.NDArray[np.int64], packet: Packet, form: StreamFormat) -> Packet:
    """A packet of one token in place of a lost one; a fixed rate has as many as ever."""
    steps, fixed = packet.mask.size, form.layout.stride is not None
    mask = form.layout.fixed_mask(steps) if fixed else np.arange(steps) == 0
    return replace(packet, mask=mask, codes=np.repeat(token, int(mask.sum())))


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 100:
        raise ConfigError(f"lossy: loss = {text!r}; allowed: 0 ... 99 percent")
    return value


def decode_opus(packets: list[bytes | None], frame: int) -> Samples:
    """Opus packets of `frame` samples each at 16 kHz through libopus, which fills those that are None."""
    library = _libopus()
    error = ctypes.c_int()
    decoder = ctypes.c_void_p(library.opus_decoder_create(SAMPLE_RATE, 1, ctypes.byref(error)))
    if error.value:
        raise ProgramError(f"libopus gives error {error.value}")
    pcm = np.zeros(frame, np.float32)
    pointer = pcm.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    decoded = []
    try:
        for i, packet in enumerate(packets):
            after = packets[i + 1] if packet is None and i + 1 < len(packets) else None
            data = packet or after  # what comes next may carry a coarse copy of what was lost
            count = library.opus_decode_float(decoder, data, len(data or b""), pointer, frame, int(packet is None))
            if count < 0:
                raise ProgramError(f"libopus gives error {count}")
            decoded.append(pcm[:count].copy())
    finally:
        library.opus_decoder_destroy(decoder)
    return np.concatenate(decoded)


def _libopus() -> Any:
    name = ctypes.util.find_library("opus")
    if name is None:
        raise ProgramError("the library libopus is not installed: Debian has it in the package 'libopus0'")
    library = ctypes.CDLL(name)
    library.opus_decoder_create.restype = ctypes.c_void_p
    return library
