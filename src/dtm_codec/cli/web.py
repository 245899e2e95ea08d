"""`dtm-codec serve`, `page` and `listening ...`: the pages, and the listening test before and after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from ..system.optional import import_optional
from . import options

if TYPE_CHECKING:
    from ..config import BackendName
    from ..ratings import RatingResults
    from ..ratings.preferences import PairResult
    from ..web.demo import Demo, OtherCodec
    from ..web.guard import Guard
    from ..web.listening.prepared import RoundTrip

listening = typer.Typer(help="Listening tests (MUSHRA, A/B, A/B/X): prepare, evaluate, export.", no_args_is_help=True)

Runtime = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR|TGZ",
        help="onnxruntime-web as npm installed or packed it; without it, npm fetches it once.",
    ),
]

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A prepared test, made by 'dtm-codec listening new'.")]

_OTHERS = {"codec2:700C": "c2enc", "codec2:1300": "c2enc", "opus:6": "opusenc"}
"""Codecs of like rates, and the program that each needs."""


def serve(
    host: Annotated[str, typer.Option(help="Address to bind to; the default is reachable from this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind to; 0 takes a free one.")] = 8000,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME|DIR",
            help="The demo's model. With --listening, no demo without it.",
        ),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Serve the page that computes in the browser: nothing is uploaded.")
    ] = False,
    runtime: Runtime = None,
    device: options.Device = "cpu",
    backend: options.Backend = None,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Another name to answer to on loopback, as a reverse proxy passes it on."),
    ] = None,
    listening: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Serve this prepared listening test as the first page.")
    ] = None,
    max_seconds: Annotated[
        float, typer.Option(min=1, max=600, metavar="S", help="Longest recording that the demo takes.")
    ] = 30.0,
    admin_token: Annotated[
        str | None,
        typer.Option(envvar="DTM_CODEC_ADMIN_TOKEN", help="Token of the results page; without it, a new one is made."),
    ] = None,
) -> None:
    """Serve the demo, or a listening test, to a browser on this machine."""
    import secrets
    from urllib.parse import quote

    import_optional("fastapi", "web")  # the pages import it at their top
    from ..web.app import create_app
    from ..web.guard import LOOPBACK_NAMES
    from ..web.listening.routes import RunningTest

    local = host in LOOPBACK_NAMES
    hosts = (*LOOPBACK_NAMES, *(name or ())) if local else None
    if static:
        if listening is not None:
            raise ConfigError("--static with --listening; allowed: one of them")
        from ..models.hub import DEFAULT_MODEL
        from ..web.offline.app import create_page_app
        from ..web.offline.folder import page_files

        page_app = create_page_app(page_files(model or DEFAULT_MODEL, runtime), hosts)
        _run(page_app, host, port, lambda url: [f"Page, computed in the browser: {url}/"], local)
        return
    if runtime is not None:
        raise ConfigError("--runtime without --static; allowed: both")
    running = RunningTest(listening) if listening is not None else None
    demo = _demo(model, device, backend, max_seconds) if model is not None or running is None else None
    token = admin_token or secrets.token_urlsafe(16)
    app = create_app(demo, running, token, hosts)

    def addresses(url: str) -> Iterator[str]:
        yield f"{'Listening test' if running else 'Demo'}: {url}/"
        if running and demo:
            yield f"Demo: {url}/demo"
        if running:
            yield f"Results: {url}/results#token={quote(token, safe='')}"

    _run(app, host, port, addresses, local)
    if running:
        running.store.close()


def _run(app: Guard, host: str, port: int, addresses: Callable[[str], Iterable[str]], local: bool) -> None:
    """Serve until interrupted. addresses: what to say once the URL is known"""
    import socket

    uvicorn = import_optional("uvicorn", "web")
    from ..web.connections import server_settings

    with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as bound:
        url = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
        for line in addresses(url):
            typer.echo(line)
        if not local:
            typer.echo("This address can be reached from other machines.", err=True)
        uvicorn.Server(server_settings(app)).run(sockets=[bound])


def page(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.", show_default=False)],
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME|DIR", help="The model that the page runs.")
    ] = None,
    runtime: Runtime = None,
) -> None:
    """Write the page that encodes and decodes in the browser, as a folder that any web server can host."""
    from ..models.hub import DEFAULT_MODEL
    from ..web.offline.folder import page_files, write_folder

    size = write_folder(page_files(model or DEFAULT_MODEL, runtime), output)
    typer.echo(f"{output}: {size / 1e6:.1f} MB")
    typer.echo(f"Look at it: python -m http.server --directory {output}")


def _demo(model: str | None, device: str, backend: BackendName | None, max_seconds: float) -> Demo:
    import math

    from ..live.latency import latency_of
    from ..models import hub
    from ..web.demo import Demo

    name = model or hub.DEFAULT_MODEL
    loaded = hub.load(name)
    live = math.isfinite(latency_of(loaded.config).total)  # streams need torch
    codec = options.load_codec(loaded, device, backend, in_torch=live)
    return Demo(codec, max_seconds, other_codecs())


def other_codecs() -> dict[str, OtherCodec]:
    """Codecs to compare with on the demo page, as far as their programs are installed."""
    import shutil

    from ..evaluation.systems import build
    from ..evaluation.systems.base import System
    from ..metrics.base import SAMPLE_RATE
    from ..speech.audio import Samples, resample
    from ..web.demo import Heard, OtherCodec

    def round_trip(system: System, audio: Samples, sample_rate: int) -> Heard:
        coded = system.encode(resample(audio, sample_rate, SAMPLE_RATE))
        decoded = resample(system.decode(coded), SAMPLE_RATE, sample_rate)
        assert coded.bits is not None  # these count what they send
        return Heard(decoded[: audio.size], coded.bits.total)

    names = [name for name, program in _OTHERS.items() if shutil.which(program)]
    systems = {name: build(name, "cpu") for name in names}
    return {name: OtherCodec(system.title, partial(round_trip, system)) for name, system in systems.items()}


@listening.command("new")
def new(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to compare; see docs/listening_test.md.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="New folder for the prepared test.")],
    device: options.Device = "cpu",
) -> None:
    """Prepare a listening test: run the systems, align, match loudness, make the anchor."""
    from rich.console import Console
    from rich.progress import track

    from ..web.listening.definition import load_definition
    from ..web.listening.prepared import prepare

    def progress(utterances: list[str]) -> Iterator[str]:
        yield from track(utterances, "Preparing", console=Console(stderr=True), transient=True)

    test = prepare(load_definition(config), output, partial(_system, device=device), progress)
    count = len(test.utterances)
    kind = f"{len(test.pairs)} pairs" if test.pairs else f"{len(test.systems)} stimuli"
    typer.echo(f"{output}: {count} trials of {kind}, {test.trials_per_listener} a listener")
    typer.echo(f"Serve it: dtm-codec serve --listening {output}")


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
        typer.echo(f"All {count} listeners are left out by the screening (BS.1534): they missed the hidden reference.")
        typer.echo("Results of all listeners: --no-screening")
        raise typer.Exit(1)
    _print(found, test.title)
    if csv is not None:
        counted = [rating for rating in ratings if rating.listener not in found.excluded]
        write_atomically(csv, ratings_csv(counted).encode())
    if plot is not None:
        plots.plot(found, plot, test.title)


def _print_preferences(compared: Sequence[PairResult], title: str, discrimination: bool) -> None:
    from rich.console import Console
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
    Console().print(table)


def _print(found: RatingResults, title: str) -> None:
    from rich.console import Console
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
    console = Console()
    console.print(scores)
    console.print(pairs)
    left = f", {len(found.excluded)} left out: {', '.join(found.excluded)}" if found.excluded else ""
    console.print(f"{len(found.listeners)} listeners{left}", highlight=False)


@listening.command("export-webmushra")
def export_webmushra(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="Folder to write below.")],
) -> None:
    """Write the same stimuli as an experiment for webMUSHRA."""
    from ..web.listening.prepared import load_test
    from ..web.listening.webmushra import export

    path = export(load_test(folder), folder, output)
    typer.echo(f"{path}: copy {output}/configs over the configs folder of webMUSHRA, open ?config={path.name}")
