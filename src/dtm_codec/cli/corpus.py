"""`dtm-codec tokenize` and `detokenize`: a corpus to Parquet, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from . import options, terminal

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
    bitrate: options.NominalBitrate = None,
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
    backend: options.BackendOfTokens = None,
) -> None:
    """Turn a corpus into tokens with durations, as Parquet. Run it again to go on where it was stopped."""
    from ..corpus import tokenize

    rate = options.one_rate(bitrate, token_rate, tau)
    warn = _rate_watch(model, rate)
    warn(None)
    with terminal.progress_bar("starting") as bar:

        def show(progress: Progress) -> None:
            shards = f"shard {progress.shards_done} of {progress.shards}"
            bar(progress.shards_done, progress.shards, f"{shards}, {_speed(progress)}")

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
    terminal.say(f"{counts['utterances']} utterances, {counts['hours']:.3f} h, {counts['tokens']} tokens in {output}")
    if counts["utterances"]:
        terminal.say(
            f"{rates['total_bps']:.1f} bps: {rates['content_bps']:.1f} content + {rates['position_bps']:.1f} position; "
            f"{rates['token_rate']:.2f} tokens a second"
        )
        if tau is not None:
            warn(rates["total_bps"])
    if summary.progress.report.utterances:
        terminal.say(f"this run: {_speed(summary.progress)}")
    if counts["failures"]:
        first = summary.metadata["failures"][0]
        terminal.say(f"{counts['failures']} failed, listed in metadata.json, such as {first['id']}: {first['reason']}")
        if not counts["utterances"]:
            raise typer.Exit(1)


def _rate_watch(model: str | None, rate: options.Rate) -> Callable[[float | None], None]:
    """Gives what warns of a rate at which the model was not trained, by the bits a second that it came to."""
    from ..models import hub

    loaded = hub.load(hub.DEFAULT_MODEL if model is None else model) if any(rate.values()) else None

    def warn(achieved_bps: float | None) -> None:
        if loaded is not None and (warning := options.rate_warning(loaded, rate, achieved_bps)):
            terminal.complain(f"dtm-codec: warning: {warning}")

    return warn


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

    with terminal.progress_bar("utterances") as bar:
        count = detokenize(parquet, output, model=model, device=device, force=force, on_progress=bar)
    terminal.say(f"{count} utterances in {output}")
