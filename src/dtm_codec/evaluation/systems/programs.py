"""Codec2, Opus and Speex through the programs that Debian packages (`codec2`, `opus-tools`, `speex`).

Audio goes through pipes as raw 16-bit samples. Bits are those of the codec's packets: for the two that write Ogg, page
headers, segment tables and the two header packets are not counted.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ...errors import ConfigError, DTMCodecError
from ...layout import Bits
from ...metrics.base import SAMPLE_RATE
from ...specs import Spec, positive_number
from ...speech.audio import Samples, resample
from ...speech.pcm import from_pcm, to_pcm
from .base import Coded, System, fit


class ProgramError(DTMCodecError):
    """A program is not installed, or failed."""


class ProgramCodec(System):
    """A codec that is two programs, encoder and decoder."""

    package: str
    """Debian's package."""
    encoder: list[str]
    decoder: list[str]
    rate: int
    """Sample rate of the codec."""
    delay: int = 0
    """Samples at 16 kHz by which its output lags, its programs' own compensation included; measured on speech."""
    silence: int = 0
    """Samples of silence sent after the utterance."""

    @property
    def identity(self) -> str:
        """Program and version, as far as it tells (c2enc does not), and how it is called."""
        printed = run(self.package, [self.encoder[0], "--version"], b"", any_status=True)
        version = next(iter(re.findall(rb"\d+\.\d+(?:\.\d+)?", printed)), b"").decode()
        return f"{' '.join(self.encoder)} ({self.package} {version})".replace(" )", ")")

    @abstractmethod
    def packet_bits(self, data: bytes, num_samples: int) -> tuple[int, int]:
        """Bits that the codec needs for the utterance, and bits of its packets as written."""

    def encode(self, audio: Samples) -> Coded:
        samples = resample(np.pad(audio, (0, self.silence)), SAMPLE_RATE, self.rate)
        data = run(self.package, self.encoder, to_pcm(samples).tobytes())
        content, written = self.packet_bits(data, audio.size)
        return Coded(data, audio.size, Bits(content, 0), written)

    def decode(self, coded: Coded) -> Samples:
        """Through the decoder's pipe, delay compensated."""
        samples = from_pcm(run(self.package, self.decoder, coded.payload))
        return fit(resample(samples, self.rate, SAMPLE_RATE), coded.num_samples, self.delay)


class Codec2(ProgramCodec):
    """`codec2:MODE`: 3200 ... 700C, 450. Frames are written in whole bytes; the bits counted are the codec's own."""

    package = "codec2"
    rate = 8000
    modes: ClassVar[dict[str, tuple[int, int]]] = {  # frame in ms, bits a frame
        "3200": (20, 64),
        "2400": (20, 48),
        "1600": (40, 64),
        "1400": (40, 56),
        "1300": (40, 52),
        "1200": (40, 48),
        "700C": (40, 28),
        "450": (40, 18),
    }

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(())
        mode = spec.choice(self.modes, "700C")
        self.name, self.title, self.series = f"codec2:{mode}", f"Codec2 {mode}", "Codec2"
        milliseconds, self.frame_bits = self.modes[mode]
        self.frame = milliseconds * SAMPLE_RATE // 1000
        self.delay = {"700C": 480, "450": 450}.get(mode, 320)
        self.silence = self.delay + self.frame  # the program drops what does not fill a frame
        self.encoder, self.decoder = ["c2enc", mode, "-", "-"], ["c2dec", mode, "-", "-"]

    def packet_bits(self, data: bytes, num_samples: int) -> tuple[int, int]:
        """Frames x bits a frame, as many as reach the end of the utterance; each is padded to whole bytes."""
        packet = -(-self.frame_bits // 8)
        frames = min(len(data) // packet, -(-(num_samples + self.delay) // self.frame))
        return frames * self.frame_bits, frames * packet * 8


class Opus(ProgramCodec):
    """`opus:KBPS` at 6 kbps and up, VBR, speech mode, 20 ms frames, 16 kHz."""

    package = "opus-tools"
    rate = SAMPLE_RATE

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(())
        kbps = positive_number(spec.argument or "6", "opus")
        if not 6 <= kbps <= 256:
            raise ConfigError(f"opus:{spec.argument}; allowed: opus:6 ... opus:256 (kbps)")
        self.name, self.title, self.series = f"opus:{kbps:g}", f"Opus {kbps:g} kbps", "Opus"
        raw = ["--raw", "--raw-bits", "16", "--raw-rate", str(self.rate), "--raw-chan", "1"]
        self.encoder = ["opusenc", "--quiet", "--speech", "--bitrate", f"{kbps:g}", *raw, "-", "-"]
        self.decoder = ["opusdec", "--quiet", "--rate", str(self.rate), "--no-dither", "-", "-"]

    def packet_bits(self, data: bytes, num_samples: int) -> tuple[int, int]:
        """Ogg packets after OpusHead and OpusTags."""
        bits = 8 * sum(list(ogg_packet_sizes(data))[2:])
        return bits, bits


class Speex(ProgramCodec):
    """`speex:nbQ` or `speex:wbQ`, quality Q of 0 ... 10, narrow (8 kHz) or wide band.

    speexdec compensates the codec's delay only in streams of several Ogg pages, so silence is sent after the utterance;
    its packets are not counted.
    """

    package = "speex"
    silence = 6 * SAMPLE_RATE
    """Samples that fill a page of 255 packets."""
    frame = SAMPLE_RATE // 50
    look_ahead = SAMPLE_RATE // 100

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(())
        match = re.fullmatch(r"(nb|wb)(10|\d)", spec.argument or "nb2")
        if match is None:
            raise ConfigError(f"speex:{spec.argument}; allowed: speex:nb0 ... speex:nb10, speex:wb0 ... speex:wb10")
        band, quality = match.groups()
        self.rate = 8000 if band == "nb" else SAMPLE_RATE
        self.name, self.series = f"speex:{band}{quality}", f"Speex {band.upper()}"
        self.title = f"{self.series} quality {quality}"
        mode = "--narrowband" if band == "nb" else "--wideband"
        self.encoder = ["speexenc", mode, "--rate", str(self.rate), "--le", "--16bit", "--quality", quality, "-", "-"]
        self.decoder = ["speexdec", "--rate", str(self.rate), "-", "-"]

    def packet_bits(self, data: bytes, num_samples: int) -> tuple[int, int]:
        """Ogg packets of the utterance, after the two headers; frames are padded to whole bytes, and counted so."""
        packets = -(-(num_samples + self.look_ahead) // self.frame)
        bits = 8 * sum(list(ogg_packet_sizes(data))[2 : 2 + packets])
        return bits, bits


def ogg_packet_sizes(data: bytes) -> Iterator[int]:
    """Bytes of each packet of an Ogg stream."""
    return map(len, ogg_packets(data))


def ogg_packets(data: bytes) -> Iterator[bytes]:
    """Packets of an Ogg stream (RFC 3533): a packet ends with its first segment under 255 bytes."""
    position, packet = 0, b""
    while data[position : position + 4] == b"OggS":
        segments = data[position + 27 : position + 27 + data[position + 26]]
        position += 27 + len(segments)
        for segment in segments:
            packet += data[position : position + segment]
            position += segment
            if segment < 255:
                yield packet
                packet = b""


def run(package: str, command: list[str], data: bytes, any_status: bool = False) -> bytes:
    """What a program prints for `data` on its standard input."""
    if shutil.which(command[0]) is None:
        raise ProgramError(f"the program {command[0]!r} is not installed: Debian has it in the package {package!r}")
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode and not any_status:
        message = done.stderr.decode(errors="replace").strip().splitlines()
        raise ProgramError(f"{' '.join(command)} failed: {message[-1] if message else f'status {done.returncode}'}")
    return done.stdout or done.stderr
