"""DTM-Codec under test: any checkpoint, selector and rate.

`dtm:MODEL?bitrate=800` where MODEL is a bundled name, a folder, a hub id or random:PRESET. Options: at most one of
`bitrate` (total bps), `token_rate` (Hz) and `tau`, and `selector`, `s_max`, `features` to swap the selector. With
`bitrate` or `token_rate` each utterance meets the rate; without any, the tau of training serves all.
"""

from __future__ import annotations

from typing import Any

from ...audio import resample
from ...codec import DTMCodec
from ...config import SelectorConfig
from ...errors import ConfigError
from .. import SAMPLE_RATE
from ..specs import Spec
from .base import Coded, Samples, System, fit

_RATES = {"bitrate": "{:g} bps", "token_rate": "{:g} Hz", "tau": "tau {:g}"}
_SELECTOR = ("selector", "s_max", "features")


class DTM(System):
    """One of our models at one operating point."""

    def __init__(self, spec: Spec) -> None:
        spec.allow_options((*_RATES, *_SELECTOR))
        if spec.argument is None:
            raise ConfigError("dtm: which model? allowed: dtm:NAME, dtm:FOLDER, dtm:OWNER/NAME, dtm:random:PRESET")
        self.codec = DTMCodec.from_pretrained(spec.argument)
        config = self.codec.config
        self.rate: dict[str, Any] = {key: spec.number(key) for key in _RATES if key in spec.options}
        self.selector = _selector(config.selector, spec.options)
        self.name = spec.name + ("?" if spec.options else "") + "&".join(f"{k}={v}" for k, v in spec.options.items())
        changes = [f"{key} {spec.options[key]}" for key in _SELECTOR if key in spec.options]
        changes += [_RATES[key].format(value) for key, value in self.rate.items()]
        self.title = ", ".join([f"DTM-Codec {config.name}", *changes])
        kind = "FFR" if config.is_fixed_rate else "VFR"
        # models at their own rates make the paper's two curves; one model at several rates makes a curve of its own
        self.series = f"DTM-Codec {config.name} by rate" if self.rate else f"DTM-Codec {kind}"

    @property
    def identity(self) -> str:
        """Name and fingerprint of the weights."""
        return self.codec.model_id

    @property
    def parameters(self) -> int:
        """Trainable numbers."""
        return self.codec.num_parameters

    def encode(self, audio: Samples) -> Coded:
        """Bits as Eq. 5 counts them; written: mask and tokens of the compact file, without its header."""
        from ...bitstream.container import inspect

        encoded = self.codec.encode(audio, SAMPLE_RATE, selector=self.selector, **self.rate)
        info = inspect(encoded.to_bytes())
        return Coded(encoded, audio.size, encoded.bits, info.mask_bits + info.token_bits_written)

    def decode(self, coded: Coded) -> Samples:
        """Decoded, and resampled if the model has another rate."""
        audio = resample(self.codec.decode(coded.payload), self.codec.config.sample_rate, SAMPLE_RATE)
        return fit(audio, coded.num_samples)


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
