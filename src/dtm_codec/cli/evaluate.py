"""`dtm-codec evaluate`, `report`, `recipe` and `bench`: fair comparisons, and the paper's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from . import options

Output: TypeAlias = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the results.")]
Metrics: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Names joined by commas: pesq, stoi, estoi, si-sdr, mel, stft, utmos, utmosv2, distillmos, "
        "dnsmos[:ovrl|sig|bak|p808], spk-sim[:wavlm|onnx], wer[:hubert|whisper|moonshine], cer[:...]; a model by "
        "?model=PATH or in the folder that $DTM_METRIC_MODELS names. Default: the paper's columns, by judges at hand.",
        show_default=False,
    ),
]
Jobs: TypeAlias = Annotated[int, typer.Option(help="Processes.", min=1)]
Where: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Take only such utterances, as lang=en or lang!=en; may be repeated."),
]


@contextmanager
def _progress_of_many() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Bars on standard error, one per named piece of work, each set by the number done and the total."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:

        def start(what: str) -> Callable[[int, int], None]:
            task = bars.add_task(what, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield start


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """One such bar."""
    with _progress_of_many() as start:
        yield start(what)


def evaluate(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM",
            help="dtm:MODEL with ?bitrate=BPS, ?token_rate=HZ or ?tau=X, and &selector=NAME, &s_max=N, &thin=BPS; "
            "lossy:SYSTEM with ?loss=PERCENT, &burst=MS and &conceal=mask, zero or repeat; identity; "
            "lowpass[:HZ]; codec2:MODE; opus:KBPS; speex:nbQ or speex:wbQ; amr:nbKBPS or amr:wbKBPS; encodec:KBPS, "
            "dac:N, mimi:N, snac, xcodec:KBPS with ?model=DIR or ?model=HUB_ID.",
            show_default=False,
        ),
    ],
    data: Annotated[str, typer.Option(metavar="MANIFEST|DIR", help="JSON-lines manifest, or a folder of audio.")],
    output: Output,
    metrics: Metrics = None,
    where: Where = None,
    jobs: Jobs = 1,
    device: options.Device = "cpu",
) -> None:
    """Judge systems on speech: bits and metrics of every utterance, means with 95 % intervals.

    Stopped at any point, the same command goes on where it was.
    """
    from .. import metrics as registry
    from ..evaluation.data import read_data
    from ..evaluation.rendering import markdown_table
    from ..evaluation.report import run_section
    from ..evaluation.runner import evaluate as run

    names = metrics.split(",") if metrics else registry.standard()
    utterances = read_data(data, where or ())
    with _progress("evaluate") as progress:
        source = " ".join([Path(data).name, *(where or ())])
        summary = run(systems, names, utterances, output, jobs=jobs, device=device, source=source, progress=progress)
    for block in run_section(summary, source):
        typer.echo(markdown_table(block))
    typer.echo(f"\n{output / 'summary.json'}, {output / 'utterances.parquet'}")


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders of `evaluate`.", show_default=False)],
    output: Output,
) -> None:
    """Tables and the rate-distortion figure of finished runs, the paper's rows beside them: Markdown, LaTeX, HTML."""
    from ..evaluation.report import make_report

    for path in make_report(runs, output):
        typer.echo(path)


def recipe(
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
        metrics=metrics.split(",") if metrics else registry.standard(),
        out=output,
        data=data,
        calibrate=calibrate,
        codes_data=codes_data,
        probes=probe or (),
        ratings=ratings,
        jobs=jobs,
        device=device,
    )
    with _progress_of_many() as progress:
        files = RecipeRunner(settings, progress).run(wanted)
    for path in files:
        typer.echo(path)


def bench(
    systems: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SYSTEM",
            help="As for evaluate; the first is what ratios are to. Default: ours, 127 M and small, against EnCodec, "
            "Mimi, DAC and SNAC, all with random weights.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Length of the speech.", min=1)] = 10.0,
    rounds: Annotated[int, typer.Option(help="Times that each system is timed, in turns.", min=1)] = 5,
    memory: Annotated[
        str, typer.Option(help="Lengths in seconds to measure peak memory at, joined by commas; empty for none.")
    ] = "10,60",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write the figures as JSON.")
    ] = None,
) -> None:
    """Real-time factors, selector share and memory of codecs in one interleaved run on one thread."""
    import dataclasses
    import json

    from ..evaluation.bench import DEFAULT_SYSTEMS, bench_block
    from ..evaluation.bench import bench as run
    from ..evaluation.rendering import markdown_table
    from ..files import write_atomically

    try:
        lengths = [float(length) for length in memory.split(",") if length.strip()]
    except ValueError:
        raise typer.BadParameter(f"{memory!r}; allowed: numbers joined by commas", param_hint="--memory") from None
    with _progress("bench") as progress:
        timings = run(systems or DEFAULT_SYSTEMS, seconds, rounds, lengths, progress)
    if output is not None:
        write_atomically(
            output, json.dumps([dataclasses.asdict(timing) for timing in timings], indent=2).encode() + b"\n"
        )
    typer.echo(markdown_table(bench_block(timings, seconds)))
