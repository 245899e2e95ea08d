"""Systems under test, by name: `kind[:argument][?key=value&...]`. Importing this loads none of them."""

from __future__ import annotations

from importlib import import_module

from ...errors import ConfigError
from ...specs import Spec
from .base import Coded, System

__all__ = ["Coded", "System", "build"]

_SYSTEMS = {
    "dtm": "ours:DTM",
    "page": "page:Page",
    "folder": "foreign:Folder",
    "command": "foreign:Command",
    "lossy": "lossy:Lossy",
    "identity": "plain:Identity",
    "lowpass": "plain:LowPass",
    "codec2": "programs:Codec2",
    "opus": "programs:Opus",
    "speex": "programs:Speex",
    "amr": "amr:AMR",
    "encodec": "neural:EnCodec",
    "dac": "neural:DAC",
    "mimi": "neural:Mimi",
    "snac": "neural:SNAC",
    "xcodec": "neural:XCodec",
}


def build(text: str, device: str = "cpu") -> System:
    """The system of that name; its network, if it has one, runs on `device`."""
    spec = Spec.parse(text)
    if spec.kind not in _SYSTEMS:
        raise ConfigError(f"unknown system {spec.kind!r}; known: {', '.join(_SYSTEMS)}")
    module, _, cls = _SYSTEMS[spec.kind].partition(":")
    system: System = getattr(import_module(f".{module}", __name__), cls)(spec)
    return system.to(device)
