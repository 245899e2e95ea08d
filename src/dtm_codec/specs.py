"""The little language that names systems and metrics: `kind[:argument][?key=value&key=value]`.

codec2:700C    dtm:runs/s-vfr-50?bitrate=800&selector=ple    wer:whisper?model=large-v3
command:mine {in} {out}?bps=800
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .errors import ConfigError


@dataclass(frozen=True)
class Spec:
    kind: str
    argument: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Spec:
        head, mark, query = _split_options(text.strip())
        kind, colon, argument = head.partition(":")
        pairs = [pair.partition("=") for pair in query.split("&")] if mark else []
        if not all(key and equals for key, equals, _ in pairs):
            raise ConfigError(f"{text!r}: after '?' stand key=value pairs joined by '&'")
        if not kind or (colon and not argument):
            raise ConfigError(f"{text!r} is no name; allowed: kind[:argument][?key=value&...]")
        options: dict[str, str] = {}
        for key, _, value in pairs:
            if key in options:
                raise ConfigError(f"{text!r}: the option {key!r} is there twice")
            options[key] = value
        return Spec(kind, argument or None, options)

    @property
    def name(self) -> str:
        return self.kind if self.argument is None else f"{self.kind}:{self.argument}"

    @property
    def text(self) -> str:
        return self.name + ("?" if self.options else "") + "&".join(f"{k}={v}" for k, v in self.options.items())

    def allow_options(self, allowed: Iterable[str]) -> None:
        """Refuse options that nobody would read."""
        allowed = sorted(allowed)
        for key in self.options:
            if key not in allowed:
                raise ConfigError(f"{self.name}: unknown option {key!r}; known: {', '.join(allowed) or 'none'}")

    def choice(self, allowed: Iterable[str], default: str | None = None) -> str:
        """The argument, one of a few."""
        allowed = list(allowed)
        value = default if self.argument is None else self.argument
        if value not in allowed:
            raise ConfigError(f"{self.kind}:{value or ''}; allowed: {', '.join(f'{self.kind}:{a}' for a in allowed)}")
        return value


_SHELL = "command:"
"""What follows is a line for a shell, in which '?' and '&' have meanings of their own."""

_OPTIONS = re.compile(r"\?\w+=[^&?]*(&\w+=[^&?]*)*$")


def _split_options(text: str) -> tuple[str, str, str]:
    """Head, '?' and options. Of a line for a shell, options are what looks like them at its end."""
    if not text.startswith(_SHELL):
        return text.partition("?")
    found = _OPTIONS.search(text)
    return (text[: found.start()].strip(), "?", found[0][1:]) if found else (text, "", "")


def whole_number(text: str, where: str, lowest: int = 0) -> int:
    """A whole number >= `lowest` that stands in a name; `where` is what an error calls it."""
    if not (text.isascii() and text.isdigit() and int(text) >= lowest):
        raise ConfigError(f"{where} = {text!r}; allowed: a whole number >= {lowest}")
    return int(text)


def positive_number(text: str, where: str) -> float:
    """A number > 0 that stands in a name; `where` is what an error calls it."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{where} = {text!r}; allowed: a number > 0")
    return value
