"""What all commands have in common: an empty argument is refused, and so is a number that is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

EMPTY_MEANS_NONE = frozenset({"memory"})
"""Parameters whose help says what '' means."""


class Command(TyperCommand):
    """A command that takes no '' for an answer. It is what a shell makes of a variable that is not set; as a path it
    would mean this folder, and as an address all of this machine's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = self.make_parser(ctx).parse_args(args=list(args))[0]
        parameter: Any  # typer has a copy of click of its own, whose classes have no public names
        for parameter in self.params:
            value = given.get(str(parameter.name))
            if parameter.name not in EMPTY_MEANS_NONE and "" in (value if isinstance(value, list | tuple) else [value]):
                raise typer.BadParameter("''; allowed: anything but an empty name ('.' is this folder)", ctx, parameter)
        rest = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(str(parameter.name))
            if isinstance(value, float) and not math.isfinite(value):  # a range lets nan through
                raise typer.BadParameter(f"{value}; allowed: a finite number", ctx, parameter)
        return rest


class Commands(typer.Typer):
    """A group of such commands."""

    def command(self, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
        return super().command(*arguments, **{"cls": Command, **options})
