"""A corpus as variable-rate tokens: to Parquet and back, and as sequences for language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import CorpusError
from .flattening import Scheme, SchemeName, flatten, unflatten

if TYPE_CHECKING:
    from .detokenizer import detokenize
    from .run import tokenize

__all__ = ["CorpusError", "Scheme", "SchemeName", "detokenize", "flatten", "tokenize", "unflatten"]


def __getattr__(name: str) -> Any:
    """Load on first use: flattening needs numpy alone, the others torch and pyarrow."""
    if name == "tokenize":
        from .run import tokenize

        return tokenize
    if name == "detokenize":
        from .detokenizer import detokenize

        return detokenize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
