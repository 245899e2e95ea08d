"""DTM-Codec: speech at 400-1300 bits a second, spent where speech changes.

from dtm_codec import DTMCodec

codec = DTMCodec.from_pretrained()
encoded = codec.encode(audio, sample_rate, bitrate=800)
codec.save(encoded, "speech.dtm")
audio = codec.decode(codec.load("speech.dtm"))  # at codec.config.sample_rate
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batches import AudioBatch, TokenBatch
    from .codec import DTMCodec
    from .coding.research import Features
    from .config import PRESETS, CodecConfig, QuantizerConfig, SelectorConfig, preset
    from .encoded import Encoded
    from .errors import AudioError, BitstreamError, ConfigError, DTMCodecError, ModelError, RateError
    from .layout import Layout

__version__ = "0.2.0"

_HOME = {
    "DTMCodec": "codec",
    "Features": "coding.research",
    **dict.fromkeys(("AudioBatch", "TokenBatch"), "batches"),
    **dict.fromkeys(("PRESETS", "CodecConfig", "QuantizerConfig", "SelectorConfig", "preset"), "config"),
    "Encoded": "encoded",
    "Layout": "layout",
    **dict.fromkeys(
        ("AudioError", "BitstreamError", "ConfigError", "DTMCodecError", "ModelError", "RateError"), "errors"
    ),
}

__all__ = [
    "PRESETS",
    "AudioBatch",
    "AudioError",
    "BitstreamError",
    "CodecConfig",
    "ConfigError",
    "DTMCodec",
    "DTMCodecError",
    "Encoded",
    "Features",
    "Layout",
    "ModelError",
    "QuantizerConfig",
    "RateError",
    "SelectorConfig",
    "TokenBatch",
    "preset",
]


def __getattr__(name: str) -> Any:
    """Load on first use: the bitstream and `dtm-codec --help` need no torch."""
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
