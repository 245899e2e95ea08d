"""DTM-Codec under test: any checkpoint, selector and rate.

`dtm:MODEL?bitrate=800` where MODEL is a bundled name, a folder, a hub id or random:PRESET. Options: at most one of
`bitrate` (total bps), `token_rate` (Hz) and `tau`, `selector`, `s_max`, `features` to swap the selector, and `effort`,
how many other codes are tried for each token. With `bitrate` or `token_rate` each utterance meets the rate; with
`calibrate=MANIFEST` beside them one tau serves all utterances, found so that this set as a whole meets the rate (paper
Section 4.1). Without any: the tau of training.
`backend=onnx` computes without torch (`DTMCodec.from_pretrained`).
`thin=500` drops tokens from what was encoded, down to so many bits a second.
`stream=80` encodes as a live call does: packets of so many ms, tau steered by what was heard so far.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ...codec import DTMCodec
from ...config import SelectorConfig
from ...encoded import Encoded
from ...errors import ConfigError
from ...live.latency import packet_steps
from ...metrics.base import SAMPLE_RATE
from ...rate.calibration import calibrate, tokens_for_bitrate, tokens_for_token_rate
from ...rate.request import RateRequest
from ...selectors import build
from ...specs import Spec, positive_number, whole_number
from ...speech.audio import Samples, resample
from ..data import read_data
from .base import Coded, System, fit

_RATES = {"bitrate": "{:g} bps", "token_rate": "{:g} Hz", "tau": "tau {:g}"}
_SELECTOR = ("selector", "s_max", "features")


class DTM(System):
    def __init__(self, spec: Spec) -> None:
        spec.allow_options((*_RATES, *_SELECTOR, "effort", "calibrate", "thin", "backend", "stream"))
        if spec.argument is None:
            raise ConfigError("dtm: which model? allowed: dtm:NAME, dtm:FOLDER, dtm:OWNER/NAME, dtm:random:PRESET")
        self.codec = _codec(spec)
        config = self.codec.config
        self.rate: dict[str, Any] = {
            key: positive_number(spec.options[key], f"{spec.name}: {key}") for key in _RATES if key in spec.options
        }
        self.selector = _selector(config.selector, spec.options)
        self.effort = whole_number(spec.options.get("effort", "0"), f"{spec.name}: effort")
        self.name = spec.text
        thin = spec.options.get("thin")
        self.thin = None if thin is None else positive_number(thin, f"{spec.name}: thin")
        stream = spec.options.get("stream")
        self.packet_ms = None if stream is None else positive_number(stream, f"{spec.name}: stream")
        if self.packet_ms is not None:
            packet_steps(config, self.packet_ms)  # refuses what is no length of packets
            foreign = [key for key in (*_SELECTOR, "effort", "thin") if key in spec.options]
            if foreign:
                raise ConfigError(f"{spec.name}: stream with {', '.join(foreign)}; allowed: one of them")
        changes = [f"{key} {spec.options[key]}" for key in _SELECTOR if key in spec.options]
        changes += [_RATES[key].format(value) for key, value in self.rate.items()]
        if self.effort:
            changes.append(f"effort {self.effort}")
        changes += [spec.options["backend"]] if "backend" in spec.options else []
        changes += [] if self.thin is None else [f"thinned to {self.thin:g} bps"]
        changes += [] if self.packet_ms is None else [f"streamed in packets of {self.packet_ms:g} ms"]
        self.title = ", ".join([f"DTM-Codec {config.name}", *changes])
        kind = "FFR" if self.selector.name == "stride" else "VFR"
        # models at their own rates make the paper's two curves; one model at several rates makes a curve of its own
        own_rate = not self.rate or "calibrate" in spec.options
        self.series = f"DTM-Codec {kind}" if own_rate else f"DTM-Codec {config.name} by rate"
        if self.selector != config.selector:
            self.series += f", {self.selector.name}"
        if self.effort:
            self.series += f", effort {self.effort}"
        if "calibrate" in spec.options:
            self.title += f" on {Path(spec.options['calibrate']).name}"
            self.rate = {"tau": _calibrated_tau(spec, self.codec.model_id, self.selector, self.rate)}
        self._spec = spec

    @property
    def identity(self) -> str:
        """Name and fingerprint of the weights, and the tau that was chosen."""
        tau = self.rate.get("tau")
        return self.codec.model_id + (f" tau {tau:.9g}" if tau else "")

    @property
    def settled_name(self) -> str:
        """With the tau that calibration has found."""
        if "calibrate" not in self._spec.options:
            return self.name
        kept = {
            key: value
            for key, value in self._spec.options.items()
            if key in (*_SELECTOR, "effort", "thin", "backend", "stream")
        }
        return replace(self._spec, options=kept | {"tau": repr(self.rate["tau"])}).text

    @property
    def parameters(self) -> int:
        return self.codec.num_parameters

    def to(self, device: str) -> DTM:
        self.codec.to(device)
        return self

    def encode(self, audio: Samples) -> Coded:
        """Bits as Eq. 5 counts them; written: mask and tokens of the compact file without its header, or all packets of
        a stream with theirs."""
        if self.packet_ms is not None:
            return self._streamed(audio, self.packet_ms)
        encoded = self.codec.encode(audio, SAMPLE_RATE, selector=self.selector, effort=self.effort, **self.rate)
        if self.thin is not None:
            encoded = self.codec.thin(encoded, bitrate=self.thin)
        info = encoded.to_file("compact", self.codec.token_model).info
        return Coded(encoded, audio.size, encoded.bits, info.mask_bits + info.token_bits_written)

    def _streamed(self, audio: Samples, packet_ms: float) -> Coded:
        encoder = self.codec.stream_encoder(**self.rate, packet_ms=packet_ms, sample_rate=SAMPLE_RATE)
        form, packets = encoder.format, [*encoder.push(audio), *encoder.flush()]
        mask, codes, num_samples = form.join([form.read(packet) for packet in packets])
        encoded = Encoded(codes, mask, num_samples, form.model_id, form.layout)
        return Coded(encoded, audio.size, encoded.bits, 8 * sum(map(len, packets)))

    def decode(self, coded: Coded) -> Samples:
        """Decoded, and resampled if the model has another rate."""
        audio = resample(self.codec.decode(coded.payload), self.codec.config.sample_rate, SAMPLE_RATE)
        return fit(audio, coded.num_samples)


def _codec(spec: Spec) -> DTMCodec:
    backend: Any = spec.options.get("backend")  # checked when it is loaded
    return DTMCodec.from_pretrained(str(spec.argument), backend=backend)


def use_selector(codec: DTMCodec, selector: SelectorConfig) -> None:
    """Make `selector` the codec's own; its tau is then unknown."""
    if selector != codec.config.selector:
        codec.backend.use_selector(replace(codec.config, selector=selector), build(selector))


def _calibrated_tau(spec: Spec, model_id: str, selector: SelectorConfig, rate: dict[str, Any]) -> float:
    """The tau at which the set as a whole meets a bitrate or token rate; found once per process."""
    request = RateRequest(**rate)
    if request.is_open or request.tau is not None:
        raise ConfigError(f"{spec.name}: calibrate needs a rate to reach; give bitrate=BPS or token_rate=HZ beside it")
    source = spec.options["calibrate"]
    key = (model_id, selector, request, source)
    if key not in _TAUS:
        codec = _codec(spec)
        use_selector(codec, selector)
        if codec.layout.stride is not None:
            raise ConfigError(f"{spec.name}: a fixed rate needs no calibration")
        signals = [utterance.read(codec.config.sample_rate)[0] for utterance in read_data(source)]
        lengths, s_max = [signal.size for signal in signals], codec.backend.selector.s_max
        if request.bitrate is not None:
            target = tokens_for_bitrate(request.bitrate, lengths, codec.layout, s_max)
        else:
            target = tokens_for_token_rate(request.token_rate or 0.0, lengths, codec.layout, s_max)
        statistics = [codec.selector_statistics(signal, codec.config.sample_rate) for signal in signals]
        _TAUS[key] = calibrate(codec.backend.selector, statistics, target).tau
    return _TAUS[key]


_TAUS: dict[tuple[str, SelectorConfig, RateRequest, str], float] = {}


def _selector(own: SelectorConfig, options: dict[str, str]) -> SelectorConfig:
    """The model's own selector, with what the options change; another selector keeps only its features."""
    plain = own.to_dict()
    if "selector" in options:
        plain = {"name": options["selector"], "features": own.features}
    if "features" in options:
        plain["features"] = options["features"]
    if "s_max" in options:
        plain["s_max"] = int(options["s_max"]) if options["s_max"].isdigit() else options["s_max"]
    return SelectorConfig.from_dict(plain, "selector")
