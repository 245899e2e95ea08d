"""What a user can get wrong. Every message names the value and what is allowed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class DTMCodecError(ValueError):
    """Base of all errors a user can cause; the command line prints it as one line and exits 2."""


class ConfigError(DTMCodecError):
    """A configuration has an unknown key or an impossible value."""


class AudioError(DTMCodecError):
    """Audio that cannot be read, or that is no speech signal (empty, NaN, wrong shape)."""


class DataError(DTMCodecError):
    """A set of recordings that cannot be read, or that has nothing to use."""


class RateError(DTMCodecError):
    """A bitrate or token rate that the model cannot reach."""


class ModelError(DTMCodecError):
    """A model that cannot be found or loaded, or one that did not make the file to decode."""


class BitstreamError(DTMCodecError):
    """Bytes that are not a sound `.dtm` file."""


class MissingExtraError(DTMCodecError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package!r}: pip install 'dtm-codec[{extra}]'")


def import_extra(module: str, extra: str) -> Any:
    """A module that comes with an extra, or the advice to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(module.partition(".")[0], extra) from None
