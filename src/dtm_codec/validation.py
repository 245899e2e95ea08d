"""How what a user wrote is read and checked, in YAML, JSON or Python: every message names the field, the value and what
is allowed."""

from __future__ import annotations

import dataclasses
import json
import re
import reprlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import ConfigError
from .system.optional import import_optional

Built = TypeVar("Built")

_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 20
_FLOAT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$")


class Validated:
    """A frozen dataclass that checks the types of its fields, whoever builds it."""

    def __post_init__(self) -> None:
        for key, hint in _hints(type(self)).items():
            object.__setattr__(self, key, _convert(getattr(self, key), hint, key))

    @classmethod
    def from_dict(cls: type[Built], data: Mapping[str, Any], where: str = "") -> Built:
        """Build from plain data; `where` is the dotted path that errors name."""
        return build(cls, data, where)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` turns back into an equal configuration."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[call-overload]
        return plain


def build(cls: type[Built], data: Any, where: str = "") -> Built:
    """A dataclass from plain data: keys and types are checked, also of dataclasses inside it."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where or cls.__name__}: expected a mapping, got {_SHORT.repr(data)}")
    hints = _hints(cls)
    values = {key: _convert(data[key], hints[key], _dotted(where, key)) for key in data if key in hints}
    for key in data:
        if key not in hints:
            unknown = _SHORT.repr(_dotted(where, str(key)))
            raise ConfigError(f"unknown key {unknown}; known keys: {', '.join(sorted(hints))}")
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in data:
            raise ConfigError(f"the key {_dotted(where, field.name)!r} is missing")
    return cls(**values)


def _dotted(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Check `value` against a field's type; ints pass for floats, lists for tuples, mappings for dataclasses."""
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else build(hint, value, where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where} = {_SHORT.repr(value)}; allowed: {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} = {_SHORT.repr(value)}; expected a list")
        return tuple(_convert(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} = {_SHORT.repr(value)}; expected a mapping")
        return {_convert(k, arguments[0], where): _convert(v, arguments[1], f"{where}.{k}") for k, v in value.items()}
    options = arguments or (hint,)
    if value is None and type(None) in options:
        return None
    for option in options:
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                raise ConfigError(f"{where} = {_SHORT.repr(value)}; allowed: up to 1.8e308") from None
        if option in (int, str, bool) and type(value) is option:
            return value
        if dataclasses.is_dataclass(option):
            return _convert(value, option, where)
    names = " or ".join("null" if o is type(None) else o.__name__ for o in options)
    raise ConfigError(f"{where} = {_SHORT.repr(value)}; expected {names}")


def require(condition: bool, where: str, value: Any, allowed: str) -> None:
    """Raise `ConfigError` with the field, its value and what is allowed, unless the condition holds."""
    if not condition:
        raise ConfigError(f"{where} = {_SHORT.repr(value)}; allowed: {allowed}")


def load(cls: type[Built], path: Path) -> Built:
    """A dataclass from a file, JSON or YAML by its suffix."""
    data = read_json(path) if path.suffix == ".json" else read_yaml(path)
    try:
        return build(cls, data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(_read(path), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON ({error})") from None


def read_yaml(path: Path) -> Any:
    return parse_yaml(_read(path), str(path))


def parse_yaml(text: str, where: str) -> Any:
    """What YAML says; `where` is what errors name."""
    yaml = import_optional("yaml", "train")
    try:
        return yaml.load(text, _yaml_loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: cannot be read as YAML ({' '.join(str(error).split())})") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} is there twice")
        seen[key] = value
    return seen


@cache
def _yaml_loader() -> Any:
    """PyYAML's safe loader, which takes 1e-4 for a string and the last of two equal keys, made to do neither."""
    yaml = import_optional("yaml", "train")

    def construct_mapping(self: Any, node: Any, deep: bool = False) -> Any:
        _unique([(key.value, None) for key, _ in node.value if isinstance(key.value, str)])
        return yaml.SafeLoader.construct_mapping(self, node, deep)

    loader: Any = type("Loader", (yaml.SafeLoader,), {"construct_mapping": construct_mapping})
    loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, "-+0123456789")
    return loader
