"""Test sets: the part of a manifest or folder that meets some conditions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from ..errors import DataError
from ..speech.folders import read_set
from ..speech.utterance import Utterance

_CONDITION = re.compile(r"(?P<field>\w+)(?P<relation>!?=)(?P<value>.*)")


def read_data(source: str | PathLike[str], where: Sequence[str] = ()) -> list[Utterance]:
    """Utterances of a manifest or folder that meet all conditions (`lang=en`, `lang!=en`, `set=mls_de`)."""
    utterances = read_set(Path(source), complete=True)
    chosen = [u for u in utterances if all(_meets(u, condition) for condition in where)]
    if not chosen:
        raise DataError(f"{source} has no utterances" + (f" with {' and '.join(where)}" if where else ""))
    return chosen


def _meets(utterance: Utterance, condition: str) -> bool:
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise DataError(f"condition {condition!r}; allowed: field=value or field!=value")
    value = utterance.value(match["field"])
    return value is not None and (value == match["value"]) == (match["relation"] == "=")
