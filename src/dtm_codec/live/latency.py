"""How long a stream must wait by its construction, whatever the computer: from a configuration alone.

A sample is heard again when its packet is full, every step of it has been seen with all that it may look ahead to, and
all frames that overlap with it are there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..config import CodecConfig, Stack
from ..errors import ConfigError

PACKET_MS = (40, 80, 160)


@dataclass(frozen=True)
class Latency:
    """Milliseconds; infinite where a model waits for tokens that may never come."""

    front_end: float
    """A frame reaches past the end of its step."""
    enc1: float
    enc2: float
    dec1: float
    dec2: float
    head: float
    """Frames overlap."""

    @property
    def encoder(self) -> float:
        return self.front_end + self.enc1 + self.enc2

    @property
    def decoder(self) -> float:
        return self.dec1 + self.dec2 + self.head

    @property
    def total(self) -> float:
        """Without the packet, whose length is added to it."""
        return self.encoder + self.decoder


def latency_of(config: CodecConfig) -> Latency:
    """The parts of a model's algorithmic latency."""
    step = 1000 / config.frame_rate
    edge = (config.n_fft - config.hop_length) / 2 / config.hop_length * step

    def ahead(stack: Stack) -> float:
        return lookahead_steps(config, stack) * step

    return Latency(edge, ahead("enc1"), ahead("enc2"), ahead("dec1"), ahead("dec2"), edge)


def lookahead_steps(config: CodecConfig, stack: Stack) -> float:
    """Steps of Stage 1 that a stack waits for, over all its layers. A window of Stage 2 is one of tokens, and nobody
    knows when the next comes, unless spans are limited."""
    ahead: float | None = config.lookahead(stack)
    if ahead is None:
        ahead = config.window
        if stack in ("enc2", "dec1"):
            ahead *= config.stride if config.is_fixed_rate else (config.selector.s_max or math.inf)
    return config.layers(stack) * ahead


def packet_steps(config: CodecConfig, packet_ms: float) -> int:
    """Steps of Stage 1 in a packet of that length, as near as whole steps come to it."""
    if packet_ms not in PACKET_MS:
        raise ConfigError(f"packet_ms = {packet_ms!r}; allowed: {', '.join(map(str, PACKET_MS))}")
    steps = max(1, round(packet_ms / 1000 * config.frame_rate))
    if config.is_fixed_rate and steps % config.stride:
        raise ConfigError(f"packets of {steps} steps at one token in {config.stride}; allowed: whole tokens a packet")
    return steps
