"""What a user of a corpus can get wrong."""

from __future__ import annotations

from ..errors import DTMCodecError


class CorpusError(DTMCodecError):
    """A run that cannot be begun or resumed, or tokens that cannot be stored or turned back."""
