"""`dtm-codec train`: from speech to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Argument(help="Run to do, as YAML: see configs/.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Settings to change, as in optimizer.lr=3e-4.", metavar="[KEY=VALUE]...", show_default=False
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Folder of audio, JSON-lines manifest, or tar shards. Default: data.train of the config."),
    ] = None,
    dev: Annotated[
        str | None, typer.Option(help="Folder or manifest to score on while training. Default: data.dev of the config.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/NAME.", show_default=False)] = None,
    max_steps: Annotated[int | None, typer.Option(help="Stop after this many steps in all.", min=1)] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="Stop after this many minutes, with a checkpoint.", min=0)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in OUT, if any.")] = False,
) -> None:
    """Train a codec. Ctrl-C ends it cleanly; --resume goes on as if it had never stopped."""
    import json
    import math

    from ..training.config import load_config
    from ..training.trainer import train as run

    changes = list(overrides or ())
    for key, value in (("data.train", data), ("data.dev", dev), ("max_steps", max_steps)):
        if value is not None:
            changes.append(f"{key}={json.dumps(value)}")
    settings = load_config(config, changes)
    folder = out or Path("runs") / settings.model.name
    last = run(settings, folder, resume=resume, max_minutes=math.inf if max_minutes is None else max_minutes)
    typer.echo(last)
