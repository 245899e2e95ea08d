"""`encode`, `decode` and `info`: speech to `.dtm` files and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..errors import DTMCodecError
from . import batch, jobs, options, standard_streams, terminal
from .dtm_files import DTM, bundled_configs, check_signature, checked_facts, opener
from .facts import FileFacts, facts_of, latency_text


def encode(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="IN", help="Audio files, folders (searched to any depth), globs, or - for stdin."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.dtm|DIR",
            help="A .dtm file, a folder (made if need be, folders are mirrored in it), or - for stdout. "
            "Default: beside the input.",
        ),
    ] = None,
    model: options.Model = None,
    bitrate: options.Bitrate = None,
    token_rate: options.TokenRate = None,
    tau: options.Tau = None,
    quality: options.QualityOption = None,
    written: options.Written = None,
    selector: options.Selector = None,
    effort: options.Effort = 0,
    rate: options.RawRate = None,
    channels: options.RawChannels = None,
    sample_format: options.RawForm = None,
    device: options.Device = "cpu",
    backend: options.Backend = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="One bit a step and fixed-width tokens, as the paper counts, not compact.")
    ] = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Turn speech (WAV, FLAC, OGG, MP3, with ffmpeg also M4A, WebM, AMR, WMA) into .dtm files."""
    from ..speech.audio import READ_SUFFIXES, audio_info, breaks_off

    nominal = options.one_rate(bitrate, token_rate, tau)
    wanted = options.FileRate.of(nominal, quality, False if raw else written)  # raw files are what Eq. 5 counts
    samples = jobs.only_standard_input(inputs, options.raw_format(rate, channels, sample_format))
    work = jobs.plan(inputs, output, jobs.Conversion(READ_SUFFIXES, (DTM,), beside=DTM))

    def prepare() -> Callable[[batch.Task], batch.Outcome]:
        codec = options.load_codec(model, device, backend, in_torch=effort > 0)
        asked = wanted.asked(codec, selector)

        def convert(task: batch.Task) -> batch.Outcome:
            source = task.source(samples)
            original = audio_info(source)
            encoded = codec.encode_file(source, **asked, selector=selector, effort=effort, on_progress=task.on_progress)
            file = encoded.to_file("raw" if raw else "compact", codec.token_model)
            task.write(file.data)
            facts = facts_of(file.info)
            line = f"{facts.rate_line}, {len(file.data)} bytes"
            if original.sample_rate != codec.config.sample_rate:
                line += f"; resampled from {original.sample_rate} to {codec.config.sample_rate} Hz"
            if original.channels > 1:
                line += f"; {original.channels} channels mixed to mono"
            if lost := breaks_off(encoded.duration_s, original.promised_s):
                task.warnings.append(lost)
            if asked["written"] and bitrate and facts.tokens == facts.steps and facts.written_bps < 0.97 * bitrate:
                task.warnings.append(f"all steps are kept; more than {facts.written_bps:.0f} bps cannot be spent on it")
            task.warn(options.rate_warning(codec, nominal, facts.total_bps))
            record = {
                "bytes": len(file.data),
                "input_sample_rate": original.sample_rate,
                "input_channels": original.channels,
            }
            return batch.Outcome(line, asdict(facts) | record)

        return convert

    batch.run(work, prepare, force=force, as_json=as_json)


def decode(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="IN", help=".dtm files, folders (searched to any depth), globs, or - for stdin."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.wav|OUT.flac|DIR",
            help="An audio file, a folder (made if need be, folders are mirrored in it), or - for WAV on stdout. "
            "Default: NAME.decoded.wav beside NAME.dtm.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        options.model_option("The model that made the files, if it is not a bundled one."),
    ] = None,
    device: options.Device = "cpu",
    backend: options.Backend = None,
    max_hours: options.MaxHours = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Turn .dtm files back into speech (16-bit WAV or FLAC)."""
    from ..bitstream.container import MAX_BYTES
    from ..speech.audio import WRITE_FORMATS, write_blocks

    conversion = jobs.Conversion((DTM,), tuple(WRITE_FORMATS), beside=".decoded.wav", check=check_signature)
    work = jobs.plan(inputs, output, conversion)

    def prepare() -> Callable[[batch.Task], batch.Outcome]:
        open_bytes = opener(model, max_hours, device, backend)

        def convert(task: batch.Task) -> batch.Outcome:
            codec, encoded, facts = open_bytes(task.content(MAX_BYTES))
            sample_rate = codec.config.sample_rate
            with task.output() as file:
                blocks = batch.watched(codec.decode_blocks(encoded), encoded.num_samples, task.on_progress)
                write_blocks(file, blocks, sample_rate, task.job.target.suffix if task.job.target else ".wav")
            line = f"{facts.duration_s:.2f} s at {sample_rate} Hz by {facts.model}"
            return batch.Outcome(line, asdict(facts) | {"sample_rate": sample_rate})

        return convert

    batch.run(work, prepare, force=force, as_json=as_json)


def info(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help=".dtm files, folders (searched to any depth), globs, or - for stdin."),
    ],
    max_hours: options.MaxHours = None,
    as_json: options.Json = False,
) -> None:
    """What .dtm files hold and what they cost; needs no model."""
    from ..bitstream.container import MAX_BYTES

    paths = [path for path, _ in jobs.find(inputs, (DTM,))]
    is_batch = jobs.many(inputs, len(paths))
    records: list[dict[str, Any]] = []
    console, errors = terminal.console(), terminal.console(stderr=True)
    seen = console.is_terminal and not as_json  # then what is printed shows how far it is
    with terminal.progress_bars(errors, hidden=seen) as start:
        bar = start("files")
        for number, path in enumerate(paths):
            name = str(path or jobs.STREAM)
            bar(number, len(paths))
            try:
                facts = checked_facts(standard_streams.read_bytes(path, MAX_BYTES), max_hours)
            except (DTMCodecError, OSError) as error:
                line = terminal.describe(error)
                located = line if name in str(error) or isinstance(error, OSError) else f"{name}: {line}"
                errors.print(located, markup=False, style="red")
                records.append({"input": name, "error": line})
                continue
            records.append(({"input": name} if is_batch else {}) | asdict(facts))
            if not as_json:
                table = Table.grid(padding=(0, 2))
                for label, text in [("file", name)] * is_batch + _rows(facts):
                    table.add_row(label, escape(text))
                console.print(table)
    failures = sum("error" in record for record in records)
    if as_json and (is_batch or not failures):
        terminal.say(json.dumps(records if is_batch else records[0], indent=2))
    if failures:
        raise typer.Exit(1 if is_batch else 2)


def _rows(facts: FileFacts) -> list[tuple[str, str]]:
    name = facts.model.partition(":")[0]
    same_name = [config for config in bundled_configs().values() if config.name == name]
    latency = [("latency", f"{latency_text(config)}, of the bundled {name!r} in a stream") for config in same_name]
    return facts.rows + latency
