"""A corpus as variable-rate tokens: to Parquet and back, and as sequences for language models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..system.optional import import_optional
from .errors import CorpusError
from .flattening import Scheme, SchemeName, flatten, unflatten

if TYPE_CHECKING:
    from .datasets import Batch, TokenDataset, TokenStream, collate
    from .detokenizer import detokenize
    from .run import tokenize

__all__ = [
    "Batch",
    "CorpusError",
    "Scheme",
    "SchemeName",
    "TokenDataset",
    "TokenStream",
    "collate",
    "detokenize",
    "flatten",
    "tokenize",
    "unflatten",
]

_HOME = {
    "tokenize": "run",
    "detokenize": "detokenizer",
    **dict.fromkeys(("Batch", "TokenDataset", "TokenStream", "collate"), "datasets"),
}


def __getattr__(name: str) -> Any:
    """Load on first use: flattening needs numpy alone, the others pyarrow, and datasets torch."""
    if name in _HOME:
        if _HOME[name] == "datasets":
            import_optional("torch", "torch")  # says how to install it
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
