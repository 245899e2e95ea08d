"""What a user can get wrong. Every message names the value and what is allowed."""

from __future__ import annotations


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


class FileError(DTMCodecError):
    """A file that is not there to be read, or that cannot or must not be written."""


class OutOfMemoryError(DTMCodecError):
    """A recording that takes more memory than there is."""
