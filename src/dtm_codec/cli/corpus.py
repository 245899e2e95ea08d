"""`dtm-codec tokenize` and `detokenize`: a corpus to Parquet, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from . import options

if TYPE_CHECKING:
    from ..corpus.run import Progress


def tokenize(
    corpus: Annotated[
        Path,
        typer.Argument(
            help="A folder of audio, a JSON-lines manifest, WebDataset tars, or Parquet or Arrow files with an audio "
            "column (a file, or a folder of them)."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the Parquet shards and metadata.json.")],
    model: options.Model = None,
    bitrate: options.Bitrate = None,
    token_rate: options.TokenRate = None,
    tau: options.Tau = None,
    selector: options.Selector = None,
    effort: options.Effort = 0,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes; with --ray, actors at most.", show_default="one a core; with --ray, no limit"),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on Ray: an address, 'auto' for a running cluster, or 'local'."),
    ] = None,
    shard_size: Annotated[
        int | None, typer.Option(help="Utterances in a Parquet file.", show_default="16 to 2000, for 256 files")
    ] = None,
    compare: Annotated[
        Literal["times", "content"],
        typer.Option(
            help="How a run that goes on sees that the corpus is the same: by sizes and times of its files, or by "
            "reading them."
        ),
    ] = "times",
    device: options.Device = "cpu",
    backend: options.Backend = None,
) -> None:
    """Turn a corpus into tokens with durations, as Parquet. Run it again to go on where it was stopped."""
    from ..corpus import tokenize

    rate = options.one_rate(bitrate, token_rate, tau)
    console = Console(stderr=True)
    columns = (TextColumn("shards"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("{task.description}"), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(progress: Progress) -> None:
            bar.update(task, completed=progress.shards_done, total=progress.shards, description=_speed(progress))

        summary = tokenize(
            corpus,
            output,
            model=model,
            device=device,
            backend=backend,
            **rate,
            selector=selector,
            effort=effort,
            workers=workers,
            ray=ray,
            shard_size=shard_size,
            compare=compare,
            on_progress=show,
        )
    counts, rates = summary.metadata["counts"], summary.metadata["rates"]
    typer.echo(f"{counts['utterances']} utterances, {counts['hours']:.3f} h, {counts['tokens']} tokens in {output}")
    if counts["utterances"]:
        typer.echo(
            f"{rates['total_bps']:.1f} bps: {rates['content_bps']:.1f} content + {rates['position_bps']:.1f} position; "
            f"{rates['token_rate']:.2f} tokens a second"
        )
    if summary.progress.report.utterances:
        typer.echo(f"this run: {_speed(summary.progress)}")
    if counts["failures"]:
        first = summary.metadata["failures"][0]
        typer.echo(f"{counts['failures']} failed, listed in metadata.json, such as {first['id']}: {first['reason']}")
        if not counts["utterances"]:
            raise typer.Exit(1)


def _speed(progress: Progress) -> str:
    return (
        f"{progress.speech_hours:.2f} h of speech, {progress.hours_per_hour:.1f} hours per hour, "
        f"{progress.hours_per_core_hour:.1f} per core"
    )


def detokenize(
    parquet: Annotated[Path, typer.Argument(help="A Parquet file of tokens, or a folder of them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the WAV files, named by the rows' ids.")],
    model: options.Model = None,
    device: options.Device = "cpu",
    force: options.Force = False,
) -> None:
    """Turn the tokens of a corpus back into audio, by the model that the file names or that --model finds."""
    from ..corpus import detokenize

    columns = (TextColumn("utterances"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        count = detokenize(parquet, output, model=model, device=device, force=force, on_progress=show)
    typer.echo(f"{count} utterances in {output}")
