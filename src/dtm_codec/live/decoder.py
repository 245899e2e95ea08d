"""Packets to speech, while they come in. A step that is lost is a step that was not sent: the decoder fills both.

A packet is decoded when its turn comes: those before it have come, or are given up. What comes twice or too late is
dropped. Time goes on through a loss, so what is decoded has the length of what was spoken.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import BitstreamError
from ..network import Network
from ..speech.audio import Samples
from .encoder import StreamError, check_can_stream
from .packets import SEQUENCES, Packet, StreamFormat
from .synthesis import Synthesis

MAX_CONCEALED_SECONDS = 2.0
"""What is lost beyond this is silence: nothing is left to go on from, and one forged packet must not cost minutes of
computing."""
MAX_WAIT = 64
"""Most packets held back while an earlier one is missing."""

_NOTHING = np.zeros(0, np.float32)


class StreamDecoder:
    """One listener's stream; `DTMCodec.stream_decoder` makes it."""

    def __init__(self, network: Network, form: StreamFormat, wait: int = 0) -> None:
        """wait: packets to hold back for one before them that is missing, before that one is given up."""
        check_can_stream(network.config)
        if isinstance(wait, bool) or not isinstance(wait, int) or not 0 <= wait <= MAX_WAIT:
            raise StreamError(f"wait = {wait!r}; allowed: 0 ... {MAX_WAIT} packets")
        self.format = form
        self.received = 0
        """Packets decoded."""
        self.given_up = 0
        """Packets that did not come in time."""
        self.dropped = 0
        """Packets that came twice or too late, or out of nowhere."""
        self._network, self._wait = network, wait
        self._next: int | None = None  # whose turn it is; counts on where sequence numbers begin again
        self._held: dict[int, Packet] = {}
        self._synthesis: Synthesis | None = None  # None: nothing was heard yet, or not for long
        self._stranger: int | None = None  # sequence number that would confirm one that came out of nowhere
        self._missing = 0  # packets since the last that came
        self._most_missing = math.ceil(MAX_CONCEALED_SECONDS * network.config.frame_rate / form.steps)
        self._ended = False

    def push(self, data: bytes) -> Samples:
        """Take in a packet; returns the samples that are ready. Bytes that are no packet of this stream raise
        `BitstreamError` and change nothing."""
        packet = self.format.read(data)
        size = self._network.config.quantizer.codebook_size
        if packet.codes.size and packet.codes.max() >= size:
            raise BitstreamError(f"code {packet.codes.max()}; allowed: 0 ... {size - 1}")
        expected = self._next
        if expected is None:  # a stream is joined at any packet; near its beginning, those before it may still come
            expected = 0 if packet.sequence <= self._wait else packet.sequence
        ahead = (packet.sequence - expected + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2
        restarted = _NOTHING
        if abs(ahead) > self._most_missing:
            # Far from where the stream is. One such packet may be forged or noise; a second that follows it is not.
            confirmed, self._stranger = packet.sequence == self._stranger, (packet.sequence + 1) % SEQUENCES
            if confirmed and ahead < 0 and not self._ended:  # the sender has begun anew
                restarted = np.concatenate([self._play(0), self._finish()])
                expected, ahead = packet.sequence, 0
            elif not confirmed:
                ahead = -1
        if self._ended or ahead < 0 or expected + ahead in self._held:
            self.dropped += 1
            return restarted
        self._next = expected
        self._held[expected + ahead] = packet
        return np.concatenate([restarted, self._play(self._wait)])

    def lost(self, packets: int = 1) -> Samples:
        """Give up the next packets: it is known that they will not come."""
        if isinstance(packets, bool) or not isinstance(packets, int) or not 0 <= packets < SEQUENCES:
            raise StreamError(f"lost({packets!r}); allowed: 0 ... {SEQUENCES - 1} packets")
        self._next = self._next or 0
        played = []
        for _ in range(0 if self._ended else packets):
            played.append(self._advance(self._held.pop(self._next, None)))
        return np.concatenate([_NOTHING, *played, self._play(self._wait)])

    def flush(self) -> Samples:
        """The rest: what was held back, and what waited for what would have come next."""
        rest = self._play(0)
        self._ended = True
        return np.concatenate([rest, self._finish()])

    def _play(self, wait: int) -> Samples:
        """Decode packets in turn. A gap is given up when `wait` packets after it have come."""
        played = []
        while self._held and not self._ended:
            assert self._next is not None
            if self._next not in self._held and len(self._held) <= wait:
                break
            played.append(self._advance(self._held.pop(self._next, None)))
        return np.concatenate([_NOTHING, *played])

    def _advance(self, packet: Packet | None) -> Samples:
        """Decode the packet whose turn it is, or its absence."""
        assert self._next is not None
        first, self._next = self._next * self.format.steps, self._next + 1
        if packet is None:
            return self._conceal()
        self.received += 1
        self._missing = 0
        if self._synthesis is None:
            self._synthesis = Synthesis(self._network, first)
        samples = self._synthesis.push(packet.mask, packet.codes)
        if packet.last_samples is None:
            return samples
        self._ended = True
        self._held.clear()
        samples = np.concatenate([samples, self._finish()])
        return samples[: samples.size - -packet.last_samples % self.format.layout.hop_length]

    def _conceal(self) -> Samples:
        self.given_up += 1
        self._missing += 1
        steps = self.format.steps
        if self._synthesis is not None and self._missing <= self._most_missing:
            return self._synthesis.push(np.zeros(steps, bool), np.zeros(0, np.int64))
        silence = np.zeros(steps * self.format.layout.hop_length, np.float32)
        return np.concatenate([self._finish(), silence])

    def _finish(self) -> Samples:
        if self._synthesis is None:
            return _NOTHING
        rest = self._synthesis.finish()
        self._synthesis = None
        return rest
