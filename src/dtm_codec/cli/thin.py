"""`thin`: `.dtm` files of a lower rate, without their audio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer

from . import batch, jobs, options
from .dtm_files import DTM, check_signature, opener
from .facts import facts_of


def thin(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="IN", help=".dtm files, folders (searched to any depth), globs, or - for stdin."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.dtm|DIR",
            help="A .dtm file, a folder (made if need be, folders are mirrored in it), or - for stdout. "
            "Default: NAME.thin.dtm beside NAME.dtm, which is then no input.",
        ),
    ] = None,
    bitrate: options.NominalBitrate = None,
    token_rate: options.TokenRate = None,
    model: Annotated[
        str | None,
        options.model_option("The model that made the files, if it is not a bundled one."),
    ] = None,
    max_hours: options.MaxHours = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="One bit a step and fixed-width tokens, as the paper counts, not compact.")
    ] = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Drop tokens from .dtm files down to a rate; needs neither the audio nor encoding again."""
    from ..bitstream.container import MAX_BYTES

    rate = options.one_rate(bitrate, token_rate, None)
    if bitrate is None and token_rate is None:
        raise typer.BadParameter("to which rate?", param_hint="--bitrate / --token-rate")
    work = jobs.plan(inputs, output, jobs.Conversion((DTM,), (DTM,), beside=".thin.dtm", check=check_signature))

    def prepare() -> Callable[[batch.Task], batch.Outcome]:
        open_bytes = opener(model, max_hours)

        def convert(task: batch.Task) -> batch.Outcome:
            codec, encoded, before = open_bytes(task.content(MAX_BYTES))
            thinned = codec.thin(encoded, bitrate=rate["bitrate"], token_rate=rate["token_rate"])
            file = thinned.to_file("raw" if raw else "compact", codec.token_model)
            task.write(file.data)
            facts = facts_of(file.info)
            task.warn(options.rate_warning(codec, rate, facts.total_bps))
            line = f"{before.total_bps:.0f} -> {facts.rate_line}, {len(file.data)} bytes"
            return batch.Outcome(line, asdict(facts) | {"bytes": len(file.data), "bps_before": before.total_bps})

        return convert

    batch.run(work, prepare, force=force, as_json=as_json)
