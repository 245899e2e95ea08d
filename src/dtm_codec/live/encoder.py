"""Speech to packets, while it is being spoken.

What is computed at a time does not depend on how the samples come: always as many steps as a packet has, timed so that
each packet is complete when its look-ahead has been heard. So any cutting of the input gives the same bytes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import soxr
import torch
from torch import Tensor

from ..config import CodecConfig
from ..errors import DTMCodecError, ModelError, RateError
from ..network import Network
from ..rate.request import RateRequest
from ..speech.audio import Samples, as_mono, check_level, check_sample_rate
from .latency import lookahead_steps
from .packets import SEQUENCES, Packet, StreamFormat
from .rate import Budget, CausalPLE
from .stacks import StackStream, Steps

if TYPE_CHECKING:
    from ..layout import Layout


class StreamError(DTMCodecError):
    """A stream that is used after its end, or with an impossible number of packets."""


class StreamEncoder:
    """One speaker's stream; `DTMCodec.stream_encoder` makes it."""

    def __init__(self, network: Network, form: StreamFormat, request: RateRequest, sample_rate: int) -> None:
        check_can_stream(network.config)
        self.format = form
        self._network, self._config = network, network.config
        self._resampler = _resampler(check_sample_rate(sample_rate), network.config.sample_rate)
        self._keep = _chooser(network, form.layout, request)
        self._enc1, self._enc2 = StackStream(network.enc1), StackStream(network.enc2)
        hop, edge = network.config.hop_length, (network.config.n_fft - network.config.hop_length) // 2
        self._hop, self._edge = hop, edge
        self._samples = np.zeros(edge, np.float32)  # from the start of the next frame on
        self._pushed = 0  # samples, at the caller's rate
        self._heard = 0  # samples, at the model's
        self._frames = 0
        ahead = lookahead_steps(self._config, "enc1") + lookahead_steps(self._config, "enc2")
        # the last frame of each batch is the last that a packet waits for
        self._batch_end = form.steps if math.isinf(ahead) else int(ahead) % form.steps or form.steps
        self._spectra = torch.zeros(0, network.config.n_fft // 2 + 1, dtype=torch.complex64)  # not yet selected from
        self._features: Tensor | None = None  # of the last step, for the length of the next
        self._decided: list[bool] = []  # steps that are in no packet yet
        self._codes: list[int] = []
        self._packets = 0
        self._ended = False

    @property
    def start(self) -> bytes:
        """What a receiver must have before the packets; `DTMCodec.stream_decoder` takes it."""
        return self.format.start

    def ask(self, request: RateRequest) -> None:
        """Another bitrate or token rate from the next step on."""
        if not isinstance(self._keep, CausalPLE):
            raise RateError("another rate in a stream of fixed rate; allowed: a new stream")
        if request.bitrate is None and request.token_rate is None:
            raise RateError("no rate to change to; allowed: a bitrate or a token rate")
        self._keep.steer(Budget.of(request, self.format.layout, self._config.selector.s_max))

    def push(self, samples: npt.NDArray[Any] | Tensor) -> list[bytes]:
        """Take in any number of samples; returns the packets that are ready."""
        if self._ended:
            raise StreamError("the stream has ended; start another")
        if len(samples) == 0:
            return []
        signal = check_level(as_mono(samples, "the stream", self._pushed), "the stream", self._pushed)
        self._pushed += signal.size
        return self._push(self._resampled(signal, last=False))

    def flush(self) -> list[bytes]:
        """The packets of what was heard but not sent, and the end of the stream."""
        if self._ended:
            return []
        packets = self._push(self._resampled(np.zeros(0, np.float32), last=True))
        self._ended = True
        if self._heard:
            missing = -self._heard % self._hop
            self._samples = np.pad(self._samples, (0, missing + self._edge))
            packets += self._encode((self._heard + missing) // self._hop - self._frames, last=True)
        return packets

    def _resampled(self, samples: Samples, last: bool) -> Samples:
        if self._resampler is None:
            return samples
        resampled: Samples = self._resampler.resample_chunk(samples, last=last)
        return resampled

    def _push(self, samples: Samples) -> list[bytes]:
        self._heard += samples.size
        self._samples = np.concatenate([self._samples, samples])
        packets = []
        while self._samples.size >= self._config.n_fft + (self._batch_end - self._frames - 1) * self._hop:
            packets += self._encode(self._batch_end - self._frames, last=False)
            self._batch_end += self.format.steps
        return packets

    @torch.inference_mode()
    def _encode(self, count: int, last: bool) -> list[bytes]:
        """Compute the next `count` frames, whose samples are there."""
        network, device = self._network, self._network.tau.device
        used = self._samples[: self._config.n_fft + (count - 1) * self._hop]
        frames = torch.from_numpy(used.copy()).to(device).unfold(0, self._config.n_fft, self._hop)
        self._samples = self._samples[count * self._hop :]
        positions = torch.arange(self._frames, self._frames + count, device=device)
        self._frames += count
        spectrum = network.front_end.spectrum(frames)
        frontier = math.inf if last else float(self._frames)
        z1 = self._enc1.push(Steps(network.front_end(spectrum, frames), positions, frontier))
        mask = torch.tensor(self._select(z1.values, spectrum), dtype=torch.bool, device=device)
        kept = Steps(network.down(z1.values, mask), z1.positions[mask], z1.frontier)
        z2 = self._enc2.push(kept)
        if z2.values.shape[0]:
            self._codes += network.quantizer.encode(z2.values).tolist()
        return self._packets_before(z2.frontier)

    def _select(self, z1: Tensor, spectrum: Tensor) -> list[bool]:
        """Which of these steps are kept. z1: (S, D); spectrum: of the frames that were just heard"""
        if self._config.selector.features == "logmel":
            self._spectra = torch.cat([self._spectra.to(spectrum.device), spectrum])
            spectrum, self._spectra = self._spectra[: z1.shape[0]], self._spectra[z1.shape[0] :]
        if not z1.shape[0]:
            return []
        features = self._network.selector_features(z1, spectrum)
        if isinstance(self._keep, CausalPLE):
            before = features[:0] if self._features is None else self._features
            rows = torch.cat([before, features]).cpu().numpy()
            steps = self._network.selector.statistics(rows)[before.shape[0] :, 0].tolist()
            self._features = features[-1:]
            mask = [self._keep.keep(step) for step in steps]
        else:
            first = self._packets * self.format.steps + len(self._decided)
            mask = [(first + i) % self._keep == 0 for i in range(z1.shape[0])]
        self._decided += mask
        return mask

    def _packets_before(self, frontier: float) -> list[bytes]:
        """All packets whose codes are known; at the end also one that is not full."""
        packets = []
        while self._decided:
            begin, steps = self._packets * self.format.steps, min(self.format.steps, len(self._decided))
            if begin + self.format.steps > frontier:
                break
            mask = np.array(self._decided[:steps])
            tokens = int(mask.sum())
            is_last = math.isinf(frontier) and steps == len(self._decided)
            packet = Packet(
                self._packets % SEQUENCES,
                mask,
                np.array(self._codes[:tokens], np.int64),
                self._heard - begin * self._hop if is_last else None,
            )
            del self._decided[:steps], self._codes[:tokens]
            self._packets += 1
            packets.append(self.format.write(packet))
        return packets


def check_can_stream(config: CodecConfig) -> None:
    """Refuse what cannot be coded step by step, or cannot stand a loss."""
    for name, allowed in (("downsampler", "pack"), ("upsampler", "mask"), ("stage2_positions", "time")):
        if getattr(config, name) != allowed:
            raise ModelError(f"a stream with {name} {getattr(config, name)!r}; allowed: {allowed!r}")


def _chooser(network: Network, layout: Layout, request: RateRequest) -> CausalPLE | int:
    """Path lengths, or a stride."""
    config, selector = network.config, network.config.selector
    if layout.stride is not None:
        return request.stride(layout, layout.stride, only=layout.stride)
    if selector.name != "ple":
        raise RateError(f"a stream with selector {selector.name!r}; allowed: 'ple', 'stride'")
    chooser = CausalPLE(config.frame_rate, s_max=selector.s_max, first_crossing=selector.first_crossing)
    trained = None if network.tau.isnan() else float(network.tau)
    if request.tau is not None:
        return chooser.fix(request.tau)
    if request.is_open:
        if trained is not None:
            return chooser.fix(trained)
        request = RateRequest(token_rate=config.keep_ratio * config.frame_rate)
    mean_step = None if trained is None else trained * config.keep_ratio
    return chooser.steer(Budget.of(request, layout, selector.s_max), mean_step)


def _resampler(from_rate: int, to_rate: int) -> soxr.ResampleStream | None:
    return None if from_rate == to_rate else soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32")
