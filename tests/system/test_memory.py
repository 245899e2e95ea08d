"""Too little memory is one error, and nothing else becomes it."""

from __future__ import annotations

import pytest

from dtm_codec.errors import AudioError, OutOfMemoryError
from dtm_codec.system.memory import memory_errors


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory"), Exception("std::bad_alloc")])
def test_every_librarys_word_for_it_is_understood(error: Exception) -> None:
    with pytest.raises(OutOfMemoryError, match="not enough memory"), memory_errors():
        raise error


@pytest.mark.parametrize(
    "error", [AudioError("cannot read out of memory.wav"), OSError(2, "no", "bad_alloc"), RuntimeError("a bug")]
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, memory_errors():
        raise error
    assert raised.value is error
