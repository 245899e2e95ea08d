"""Too little memory, by whatever library it is met, as one error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import DTMCodecError, OutOfMemoryError

_SIGNS = ("allocate memory", "out of memory", "failed to allocate", "bad_alloc", "bad allocation")
"""What torch, which raises `RuntimeError`, and onnxruntime, whose errors share no base but `Exception`, say of it."""


@contextmanager
def memory_errors() -> Iterator[None]:
    """Let one recording that does not fit into memory be an error of this recording."""
    try:
        yield
    except MemoryError as error:
        raise OutOfMemoryError("not enough memory") from error
    except (DTMCodecError, OSError):  # their text may hold the name of a file, which can be any
        raise
    except Exception as error:
        if not any(sign in str(error).lower() for sign in _SIGNS):
            raise
        raise OutOfMemoryError("not enough memory") from error
