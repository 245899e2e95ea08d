"""`dtm-codec evaluate`, `report` and `bench`: fair comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from . import options, terminal

Output: TypeAlias = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the results.")]
Metrics: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="all, or names joined by commas: pesq, stoi, estoi, si-sdr, mel, stft, lsd, mcd, f0-rmse, vuv, "
        "visqol[:lattice|polynomial], utmos, utmosv2, distillmos, dnsmos[:ovrl|sig|bak|p808], spk-sim[:wavlm|onnx], "
        "wer[:hubert|whisper|moonshine], cer[:...]; a model by ?model=PATH or in the folder that $DTM_METRIC_MODELS "
        "names. Default: the paper's columns, by judges at hand.",
        show_default=False,
    ),
]
Jobs: TypeAlias = Annotated[int, typer.Option(help="Processes.", min=1)]
Where: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Take only such utterances, as lang=en or lang!=en; may be repeated."),
]


def evaluate(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM",
            help="dtm:MODEL with ?bitrate=BPS, ?token_rate=HZ or ?tau=X, and &selector=NAME, &s_max=N, &thin=BPS, "
            "&backend=torch, onnx or onnx-int8; page:MODEL, in Chromium, with ?bitrate=BPS and &threads=N; "
            "lossy:SYSTEM with ?loss=PERCENT, &burst=MS and &conceal=mask, zero or repeat; identity; "
            "folder:DIR with ?name=X, &bps=N, &delay=MS; command:'... {in} {out} {bits}' with the same options; "
            "lowpass[:HZ]; codec2:MODE; opus:KBPS; speex:nbQ or speex:wbQ; amr:nbKBPS or amr:wbKBPS; encodec:KBPS, "
            "dac:N, mimi:N, snac, xcodec:KBPS with ?model=DIR or ?model=HUB_ID.",
            show_default=False,
        ),
    ],
    data: Annotated[str, typer.Option(metavar="MANIFEST|DIR", help="JSON-lines manifest, or a folder of audio.")],
    output: Output,
    metrics: Metrics = None,
    where: Where = None,
    save_audio: Annotated[
        bool, typer.Option("--save-audio", help="Keep what was decoded, as FLAC files in DIR/audio; a report plays it.")
    ] = False,
    jobs: Jobs = 1,
    device: options.Device = "cpu",
) -> None:
    """Judge systems on speech: bits and metrics of every utterance, means with 95 % intervals.

    Stopped at any point, the same command goes on where it was.
    """
    from .. import metrics as registry
    from ..evaluation.data import read_data
    from ..evaluation.rendering import markdown_table
    from ..evaluation.report import run_block
    from ..evaluation.runner import evaluate as run

    names = registry.choose(metrics)
    utterances = read_data(data, where or ())
    with terminal.progress_bar("evaluate") as progress:
        source = " ".join([Path(data).name, *(where or ())])
        summary = run(
            systems,
            names,
            utterances,
            output,
            jobs=jobs,
            device=device,
            source=source,
            save_audio=save_audio,
            progress=progress,
        )
    terminal.say(markdown_table(run_block(summary)))
    terminal.say(f"\n{output / 'summary.json'}, {output / 'utterances.parquet'}")
    for name, system in summary.systems.items():
        if system.failures:
            utterance, reason = next(iter(system.failures.items()))
            count = f"{len(system.failures)} of {summary.utterances} utterances"
            terminal.complain(f"{name} failed on {count}, such as {utterance}: {reason}")
    if not all(system.utterances for system in summary.systems.values()):
        raise typer.Exit(1)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders of `evaluate`.", show_default=False)],
    output: Output,
    title: Annotated[str | None, typer.Option(help="Headline. Default: what was compared.", show_default=False)] = None,
    examples: Annotated[
        int, typer.Option(help="Utterances of each run to hear, where its audio was saved.", min=0, max=50)
    ] = 4,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="SYSTEM",
            help="Compare all others with this one on the same utterances, with intervals of the changes.",
            show_default=False,
        ),
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Add the paper's main table and curves.")] = False,
) -> None:
    """Finished runs as a page to read and hear, and as Markdown and LaTeX: tables, rate-distortion figures, players."""
    from ..evaluation.report import make_report

    with terminal.progress_bar("report"):
        files = make_report(runs, output, title=title, examples=examples, baseline=baseline, paper=paper)
    for path in files:
        terminal.say(path)


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
        Any,
        typer.Option(
            parser=options.lengths,
            metavar="S,...",
            help="Lengths in seconds to measure peak memory at, joined by commas; empty for none.",
        ),
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
    from ..system.files import write_atomically

    with terminal.progress_bar("bench") as progress:
        timings = run(systems or DEFAULT_SYSTEMS, seconds, rounds, memory, progress)
    if output is not None:
        write_atomically(
            output, json.dumps([dataclasses.asdict(timing) for timing in timings], indent=2).encode() + b"\n"
        )
    terminal.say(markdown_table(bench_block(timings, seconds)))
