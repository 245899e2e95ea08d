"""`dtm-codec recipe`: train the models that the paper compares, and reproduce its results with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from . import options, terminal
from .commands import Commands
from .evaluate import Jobs, Metrics, Output

if TYPE_CHECKING:
    from rich.table import Table

    from ..training.family import FamilyRun


class _RunByDefault(TyperGroup):
    """`recipe main` is short for `recipe run main`."""

    default = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if named or not args else [self.default, *args])


app = Commands(
    cls=_RunByDefault,
    help="The paper's results: train the models (recipe train), then make tables and figures (recipe NAME).",
    no_args_is_help=True,
)


@app.command("run")
def run(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="all, or: main, ffr-vfr, rate-distortion, listening, masking, codebook, selectors, probing, mls; "
            "beyond the paper: losses, thinning; or a YAML file of your own.",
            show_default=False,
        ),
    ],
    output: Output,
    models: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with trained models, or with the runs that made them.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=MODEL", help="A model that is elsewhere, as vfr-50=small; may be repeated."),
    ] = None,
    family: Annotated[str, typer.Option(help="Which models the recipe's names mean: small or paper.")] = "small",
    data: Annotated[
        str | None, typer.Option(metavar="MANIFEST|DIR", help="Test set; recipes choose languages by its field lang.")
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="MANIFEST|DIR",
            help="Set to calibrate tau on, so that VFR meets the recipe's rates (dev; the paper: the test set itself). "
            "Default: the tau of training.",
        ),
    ] = None,
    codes_data: Annotated[
        str | None,
        typer.Option(metavar="MANIFEST|DIR", help="Larger set to count used codes on. Default: the test set."),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(metavar="MANIFEST|NAME=DIR", help="Probing data: a manifest with field set, or RAVDESS=DIR."),
    ] = None,
    ratings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ratings of a listening test: listener, trial, system, rating.")
    ] = None,
    metrics: Metrics = None,
    jobs: Jobs = 1,
    device: options.Device = "cpu",
) -> None:
    """Reproduce results of the paper with the models at hand, the paper's rows beside them."""
    from .. import metrics as registry
    from ..evaluation import recipes
    from ..evaluation.models import Models
    from ..evaluation.recipes.run import RecipeRunner, Settings

    given = {}
    for text in model or ():
        name, equals, where = text.partition("=")
        if not equals or not where:
            raise typer.BadParameter(f"{text!r}; allowed: NAME=MODEL, as vfr-50=small", param_hint="--model")
        given[name] = where
    wanted = [recipes.load(n) for name in names for n in (recipes.ORDER if name == "all" else (name,))]
    settings = Settings(
        models=Models(models, family, given),
        metrics=registry.choose(metrics),
        out=output,
        data=data,
        calibrate=calibrate,
        codes_data=codes_data,
        probes=probe or (),
        ratings=ratings,
        jobs=jobs,
        device=device,
    )
    with terminal.progress_bars() as progress:
        files = RecipeRunner(settings, progress).run(wanted)
    for path in files:
        terminal.say(path)


@app.command("train")
def train(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Settings for all runs, as in max_steps=3000.", metavar="[KEY=VALUE]...", show_default=False
        ),
    ] = None,
    family: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Which models: small, paper, or a YAML file of your own.")
    ] = "small",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of all runs.")] = Path("runs"),
    data: Annotated[
        str | None,
        typer.Option(help="Folder of audio, JSON-lines manifest, or tar shards. Default: data.train of the configs."),
    ] = None,
    dev: Annotated[str | None, typer.Option(help="Folder or manifest to score on while training.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time. Default: one a core on a CPU, one on GPUs.", min=1)
    ] = None,
    judged: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Report of recipe run: models whose results it keeps are not trained again."),
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after this many minutes.", min=0)] = None,
) -> None:
    """Train what is missing of a family, in order. Stopped at any time, the same command goes on."""
    import json
    import math
    import signal

    from rich.live import Live

    from ..evaluation.recipes.choices import judged_models
    from ..system.threads import available_cores
    from ..training import family as families

    given = [f"{key}={json.dumps(value)}" for key, value in (("data.train", data), ("data.dev", dev)) if value]
    runs = families.plan(families.find_family(family), output, [*given, *(overrides or ())])
    runs = families.without(runs, judged_models(judged) if judged else ())
    on_cpu = all(run.config.accelerator == "cpu" for run in runs)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(available_cores()))
    slots = min(jobs or (len(cores) if on_cpu else 1), len(cores))
    shares = [cores[slot::slots] for slot in range(slots)]
    console = terminal.console(stderr=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for kind in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a shell's background jobs start with it ignored
        signal.signal(kind, stop)
    with Live(_table(runs, slots), console=console, auto_refresh=False) as live:

        def show() -> None:
            live.update(_table(runs, slots), refresh=console.is_terminal)

        try:
            families.train_family(runs, shares, math.inf if max_minutes is None else 60 * max_minutes, show)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _table(runs: list[FamilyRun], slots: int) -> Table:
    """Every run that is under way, failed or done, and how many wait."""
    from rich.table import Table

    from ..training.family import seconds_left

    left = seconds_left(runs, slots)
    table = Table("run", "state", "steps", "seconds a step", box=None)
    for run in runs:
        if run.state != "waiting":
            speed = "" if run.seconds_a_step is None else f"{run.seconds_a_step:.2f}"
            table.add_row(run.name, run.state, f"{run.steps} / {run.config.max_steps}", speed)
    waiting = sum(run.state == "waiting" for run in runs)
    table.caption = f"{waiting} waiting" + ("" if left is None else f", about {left / 3600:.1f} hours left")
    return table
