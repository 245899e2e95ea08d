"""AMR-NB and AMR-WB through the libraries that Debian packages, called in place: no container, so bits are exact.

`amr:nb4.75` ... `amr:nb12.2` (package libopencore-amrnb0), `amr:wb6.60` ... `amr:wb23.85` (packages libvo-amrwbenc0 and
libopencore-amrwb0).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...layout import Bits
from ...metrics.base import SAMPLE_RATE
from ...specs import Spec
from ...speech.audio import Samples, resample
from ...speech.pcm import to_pcm
from .base import Coded, System, fit
from .programs import ProgramError

_MODES = {
    f"nb{kbps}": (mode, bits)
    for mode, (kbps, bits) in enumerate(
        [
            ("4.75", 95),
            ("5.15", 103),
            ("5.90", 118),
            ("6.70", 134),
            ("7.40", 148),
            ("7.95", 159),
            ("10.2", 204),
            ("12.2", 244),
        ]
    )
} | {
    f"wb{kbps}": (mode, bits)
    for mode, (kbps, bits) in enumerate(
        [
            ("6.60", 132),
            ("8.85", 177),
            ("12.65", 253),
            ("14.25", 285),
            ("15.85", 317),
            ("18.25", 365),
            ("19.85", 397),
            ("23.05", 461),
            ("23.85", 477),
        ]
    )
}
"""Number of the mode, and speech bits of its 20 ms frames (3GPP TS 26.101 and 26.201)."""

_LARGEST_FRAME = 64
"""Bytes, of either band."""


class AMR(System):
    """`amr:nbKBPS` or `amr:wbKBPS`, the codecs of mobile telephony. Counted are the speech bits of each frame."""

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(())
        mode = spec.argument or "nb4.75"
        if mode not in _MODES:
            raise ConfigError(f"amr:{mode}; allowed: {', '.join(f'amr:{m}' for m in _MODES)}")
        self.mode, self.frame_bits = _MODES[mode]
        self.wide = mode.startswith("wb")
        self.rate = SAMPLE_RATE if self.wide else 8000
        self.name, self.series = f"amr:{mode}", f"AMR-{mode[:2].upper()}"
        self.title = f"{self.series} {mode[2:]} kbps"
        self.delay = 95 if self.wide else 80  # 5 ms of look-ahead, and the filters of the wide band

    @property
    def identity(self) -> str:
        return "libvo-amrwbenc 0, libopencore-amrwb 0" if self.wide else "libopencore-amrnb 0"

    @property
    def _frame(self) -> int:
        return self.rate // 50

    def encode(self, audio: Samples) -> Coded:
        """Frame by frame; the last is filled with silence."""
        samples = to_pcm(resample(audio, SAMPLE_RATE, self.rate))
        lag = self.delay * self.rate // SAMPLE_RATE
        samples = np.pad(samples, (0, lag + -(samples.size + lag) % self._frame)).reshape(-1, self._frame)
        packet = ctypes.create_string_buffer(_LARGEST_FRAME)
        library = _library("libvo-amrwbenc.so.0" if self.wide else "libopencore-amrnb.so.0")
        state = library.E_IF_init() if self.wide else library.Encoder_Interface_init(0)
        try:
            encode = library.E_IF_encode if self.wide else library.Encoder_Interface_Encode
            packets = []
            for frame in samples:
                size = encode(ctypes.c_void_p(state), self.mode, frame.tobytes(), packet, 0)
                packets.append(packet.raw[:size])
        finally:
            (library.E_IF_exit if self.wide else library.Encoder_Interface_exit)(ctypes.c_void_p(state))
        return Coded(packets, audio.size, Bits(len(packets) * self.frame_bits, 0), 8 * sum(map(len, packets)))

    def decode(self, coded: Coded) -> Samples:
        library = _library("libopencore-amrwb.so.0" if self.wide else "libopencore-amrnb.so.0")
        output = (ctypes.c_short * self._frame)()
        state = library.D_IF_init() if self.wide else library.Decoder_Interface_init()
        try:
            decode = library.D_IF_decode if self.wide else library.Decoder_Interface_Decode
            frames = []
            for packet in coded.payload:
                decode(ctypes.c_void_p(state), packet, output, 0)
                frames.append(np.array(output, np.float32) / 32768)
        finally:
            (library.D_IF_exit if self.wide else library.Decoder_Interface_exit)(ctypes.c_void_p(state))
        return fit(resample(np.concatenate(frames), self.rate, SAMPLE_RATE), coded.num_samples, self.delay)


@cache
def _library(name: str) -> Any:
    try:
        library = ctypes.CDLL(name)
    except OSError:
        package = name.replace(".so.", "")
        raise ProgramError(f"the library {name!r} is not installed: Debian has it in the package {package!r}") from None
    for function in ("E_IF_init", "D_IF_init", "Encoder_Interface_init", "Decoder_Interface_init"):
        if hasattr(library, function):
            getattr(library, function).restype = ctypes.c_void_p
    return library
