"""The command line, `dtm-codec`: one file per command group, each parses, calls and prints.

Heavy imports (torch, matplotlib, ...) stand inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import DTMCodecError
from ..system.memory import memory_errors
from ..system.optional import missing
from ..system.terminal import PrintableFormatter
from ..system.threads import let_threads_sleep, watch_load
from . import codec, corpus, evaluate, listening, models, recipe, show, standard_streams, terminal, thin, train, web
from .commands import Commands
from .stream import stream

app = Commands(
    name="dtm-codec",
    help="Speech at 400-1300 bits a second, spent where speech changes.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        terminal.say(f"dtm-codec {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options that stand before any command."""


def _register(panel: str, *commands: Callable[..., Any]) -> None:
    """Add commands under their function names, grouped in `--help` by panel."""
    for command in commands:
        app.command(rich_help_panel=panel)(command)


_register("Codec", codec.encode, codec.decode, codec.info, thin.thin, show.show, models.models)
app.add_typer(stream, name="stream", rich_help_panel="Codec")
_register("Corpus", corpus.tokenize, corpus.detokenize)
_register("Training", train.train, train.export, train.prepare, train.shard)
_register("Evaluation", evaluate.evaluate, evaluate.report, evaluate.bench)
app.add_typer(recipe.app, name="recipe", rich_help_panel="Evaluation")
_register("Web", web.serve, web.page)
app.add_typer(listening.listening, name="listening", rich_help_panel="Web")


_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Base of what typer raises for wrong usage. It has no public name: typer has a copy of click of its own."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. What a user can get wrong is one line on stderr and exit code 2."""
    watch_load()
    standard_streams.replace_closed()
    let_threads_sleep()
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())
    try:
        with memory_errors():
            sys.exit(app(args=arguments, standalone_mode=False) or 0)
    except _UsageError as error:
        _complain_of_usage(error)
    except typer.Abort:
        sys.exit(1)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("torch", "numba"):
            raise
        terminal.complain(f"dtm-codec: {missing(str(error.name), 'torch')}")
    except (DTMCodecError, OSError) as error:
        terminal.complain(f"dtm-codec: {terminal.describe(error)}")
    sys.exit(2)


def _complain_of_usage(error: Any) -> None:
    """Say what is wrong with the words of a command."""
    message, context = " ".join(error.format_message().split()), error.ctx
    if message:  # else there were no words, and the help has been printed
        path = "dtm-codec" if context is None else context.command_path
        terminal.complain(f"{path}: {message} (see {path} --help)")
