"""How what a user wrote is checked: the field, the value and what is allowed stand in every message."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import ConfigError

Config = TypeVar("Config", bound="Validated")


class Validated:
    """Builds a frozen dataclass from plain data, checking keys and types on the way."""

    @classmethod
    def from_dict(cls: type[Config], data: Mapping[str, Any], where: str = "") -> Config:
        """Build from JSON-like data; `where` is the dotted path that errors name."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"{where or cls.__name__}: expected a mapping, got {data!r}")
        hints = get_type_hints(cls)
        unknown = sorted(set(data) - set(hints), key=str)
        if unknown:
            key = _dotted(where, str(unknown[0]))
            raise ConfigError(f"unknown key {key!r}; known keys: {', '.join(sorted(hints))}")
        return cls(**{key: _convert(value, hints[key], _dotted(where, key)) for key, value in data.items()})

    def __post_init__(self) -> None:
        """Check the types of all fields, whoever builds it."""
        for key, hint in get_type_hints(type(self)).items():
            object.__setattr__(self, key, _convert(getattr(self, key), hint, key))

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` turns back into an equal configuration."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[call-overload]
        return plain


def _dotted(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Check `value` against a field's type; ints pass for floats, lists for tuples."""
    origin = get_origin(hint)
    if isinstance(hint, type) and issubclass(hint, Validated):
        return value if isinstance(value, hint) else hint.from_dict(value, where)
    if origin is Literal:
        if value not in get_args(hint):
            raise ConfigError(f"{where} = {value!r}; allowed: {', '.join(map(repr, get_args(hint)))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} = {value!r}; expected a list")
        return tuple(_convert(item, get_args(hint)[0], f"{where}[{i}]") for i, item in enumerate(value))
    options = get_args(hint) or (hint,)
    if value is None and type(None) in options:
        return None
    for option in options:
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if option in (int, str, bool) and type(value) is option:
            return value
    names = " or ".join("null" if o is type(None) else o.__name__ for o in options)
    raise ConfigError(f"{where} = {value!r}; expected {names}")


def require(condition: bool, where: str, value: Any, allowed: str) -> None:
    """Raise `ConfigError` with the field, its value and what is allowed, unless the condition holds."""
    if not condition:
        raise ConfigError(f"{where} = {value!r}; allowed: {allowed}")
