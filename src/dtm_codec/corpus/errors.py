"""What a user of a corpus can get wrong."""

from __future__ import annotations

from ..errors import DTMCodecError


class CorpusError(DTMCodecError):
    """A corpus that cannot be read, a run that cannot be resumed, or a token sequence that cannot be turned back."""
