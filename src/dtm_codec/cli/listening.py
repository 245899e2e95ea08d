"""`dtm-codec listening ...`: a listening test before and after its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from . import options, terminal
from .commands import Commands

if TYPE_CHECKING:
    from ..ratings import RatingResults
    from ..ratings.preferences import PairResult
    from ..web.listening.prepared import RoundTrip

listening = Commands(help="Listening tests (MUSHRA, A/B, A/B/X): prepare, evaluate, export.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A prepared test, made by 'dtm-codec listening new'.")]


@listening.command("new")
def new(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to compare; see docs/listening_test.md.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="New folder for the prepared test.")],
    device: options.Device = "cpu",
) -> None:
    """Prepare a listening test: run the systems, align, match loudness, make the anchor."""
    from ..web.listening.definition import load_definition
    from ..web.listening.prepared import prepare

    with terminal.progress_bar("utterances") as bar:

        def watched(utterances: list[str]) -> Iterator[str]:
            for number, utterance in enumerate(utterances):
                bar(number, len(utterances))
                yield utterance

        test = prepare(load_definition(config), output, partial(_system, device=device), watched)
    count = len(test.utterances)
    kind = f"{len(test.pairs)} pairs" if test.pairs else f"{len(test.systems)} stimuli"
    terminal.say(f"{output}: {count} trials of {kind}, {test.trials_per_listener} a listener")
    terminal.say(f"Serve it: dtm-codec serve --listening {output}")


def _system(source: str, device: str) -> RoundTrip:
    """A system of the evaluation room, as the listening test runs it."""
    from ..evaluation.systems import build
    from ..metrics.base import SAMPLE_RATE
    from ..speech.audio import Samples, resample

    system = build(source, device)

    def run(audio: Samples, sample_rate: int) -> tuple[Samples, int]:
        return system.decode(system.encode(resample(audio, sample_rate, SAMPLE_RATE))), SAMPLE_RATE

    return run


@listening.command("results")
def results(
    folder: Folder,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ratings that count: listener, trial, system, rating.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the means (.png, .svg or .pdf).")] = None,
    screening: Annotated[
        bool, typer.Option(help="Leave out listeners who miss the hidden reference (BS.1534).")
    ] = True,
) -> None:
    """Print the table: mean and 95 % interval of every system and pairwise tests, or the share of every pair."""
    from ..ratings import analyse, preferences, ratings_csv
    from ..system.files import write_atomically
    from ..web.listening import plots
    from ..web.listening.prepared import RATINGS_FILE, load_test
    from ..web.listening.store import Store

    if plot is not None and plot.suffix.lower() not in plots.PLOT_SUFFIXES:
        raise ConfigError(f"--plot {plot}; allowed: a name that ends in {', '.join(plots.PLOT_SUFFIXES)}")
    test = load_test(folder)
    if not (folder / RATINGS_FILE).is_file():
        raise ConfigError(f"{folder} has no ratings yet")
    store = Store(folder / RATINGS_FILE)
    if test.pairs:
        choices = store.choices()
        discrimination = test.method == "abx"
        compared = preferences.analyse(choices, test.pairs, discrimination=discrimination)
        _print_preferences(compared, test.title, discrimination)
        if csv is not None:
            write_atomically(csv, preferences.choices_csv(choices).encode())
        if plot is not None:
            plots.plot_preferences(compared, plot, test.title, discrimination=discrimination)
        return
    ratings = store.ratings()
    found = analyse(ratings, test.systems, screening=screening)
    if found.all_excluded:
        count = len(found.excluded)
        terminal.say(
            f"All {count} listeners are left out by the screening (BS.1534): they missed the hidden reference."
        )
        terminal.say("Results of all listeners: --no-screening")
        raise typer.Exit(1)
    _print(found, test.title)
    if csv is not None:
        counted = [rating for rating in ratings if rating.listener not in found.excluded]
        write_atomically(csv, ratings_csv(counted).encode())
    if plot is not None:
        plots.plot(found, plot, test.title)


def _print_preferences(compared: Sequence[PairResult], title: str, discrimination: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    table.add_column("systems")
    count = "told right" if discrimination else "preferred"
    for column in (count, "share", "95 %, exact", "p (Holm)", *([] if discrimination else ["no preference"])):
        table.add_column(column, justify="right", no_wrap=column != "no preference")
    for result in compared:
        share = result.share
        figures = ["-"] * 3
        if share.share is not None and share.low is not None and share.high is not None and share.p is not None:
            figures = [f"{share.share:.0%}", f"{share.low:.1%} ... {share.high:.1%}", f"{share.p:.4f}"]
        ties = [] if discrimination else [str(result.ties)]
        names = escape(f"{result.first} {'/' if discrimination else 'over'} {result.second}")
        table.add_row(names, f"{share.count} of {share.of}", *figures, *ties)
    terminal.console().print(table)


def _print(found: RatingResults, title: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    def decimal(value: float | None, digits: int = 2) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    scores = Table(title=escape(title), title_justify="left")
    scores.add_column("system")
    for column in ("mean", "+- 95 %", "95 % over listeners", "ratings"):
        scores.add_column(column, justify="right")
    for s in found.scores:
        interval = "-" if s.low is None else f"{s.low:.2f} ... {s.high:.2f}"
        scores.add_row(escape(s.system), decimal(s.mean), decimal(s.half_width), interval, str(s.ratings))
    pairs = Table(title="Pairwise, Holm-corrected", title_justify="left")
    pairs.add_column("systems")
    for column in ("difference", "pairs", "p (Wilcoxon)", "p (t, listeners)"):
        pairs.add_column(column, justify="right")
    for p in found.pairs:
        names = escape(f"{p.first} - {p.second}")
        pairs.add_row(names, decimal(p.difference), str(p.pairs), decimal(p.wilcoxon_p, 4), decimal(p.t_test_p, 4))
    console = terminal.console()
    console.print(scores)
    console.print(pairs)
    left = f", {len(found.excluded)} left out: {', '.join(found.excluded)}" if found.excluded else ""
    console.print(f"{len(found.listeners)} listeners{left}")


@listening.command("export-webmushra")
def export_webmushra(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="Folder to write below.")],
) -> None:
    """Write the same stimuli as an experiment for webMUSHRA."""
    from ..web.listening.prepared import load_test
    from ..web.listening.webmushra import export

    path = export(load_test(folder), folder, output)
    terminal.say(f"{path}: copy {output}/configs over the configs folder of webMUSHRA, open ?config={path.name}")
