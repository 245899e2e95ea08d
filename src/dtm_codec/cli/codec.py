"""`encode`, `decode` and `info`: speech to `.dtm` files and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..errors import BitstreamError, DTMCodecError, ModelError
from ..system.files import printable
from . import batch, jobs, options, streams
from .facts import FileFacts, facts_of, latency_text

if TYPE_CHECKING:
    from ..codec import DTMCodec
    from ..config import BackendName, CodecConfig
    from ..speech.audio import Samples

DTM = ".dtm"


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
        warning, asked = options.rate_warning(codec, nominal), wanted.asked(codec, selector)

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
            task.warnings.extend([warning] if warning else [])
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
        typer.Option(
            "--model", "-m", metavar="NAME|DIR", help="The model that made the files, if it is not a bundled one."
        ),
    ] = None,
    device: options.Device = "cpu",
    backend: options.Backend = None,
    max_hours: options.MaxHours = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Turn .dtm files back into speech (16-bit WAV or FLAC)."""
    from ..bitstream.container import MAX_BYTES, read_header
    from ..speech.audio import WRITE_FORMATS, write_blocks

    conversion = jobs.Conversion((DTM,), tuple(WRITE_FORMATS), beside=".decoded.wav", check=_check_signature)
    work = jobs.plan(inputs, output, conversion)

    def prepare() -> Callable[[batch.Task], batch.Outcome]:
        codec_for = codec_finder(model, device, backend)

        def convert(task: batch.Task) -> batch.Outcome:
            data = task.content(MAX_BYTES)
            header = read_header(data)
            codec = codec_for(header.model_id)
            codec.check_layout(header.layout)
            facts = _checked_facts(data, max_hours)
            encoded, sample_rate = codec.from_bytes(data), codec.config.sample_rate
            with task.output() as file:
                blocks = _watched(codec.decode_blocks(encoded), encoded.num_samples, task.on_progress)
                write_blocks(file, blocks, sample_rate, task.job.target.suffix if task.job.target else ".wav")
            line = f"{facts.duration_s:.2f} s at {sample_rate} Hz by {facts.model}"
            return batch.Outcome(line, asdict(facts) | {"sample_rate": sample_rate})

        return convert

    batch.run(work, prepare, force=force, as_json=as_json)


def _watched(blocks: Iterable[Samples], total: int, on_progress: Callable[[float], None]) -> Iterator[Samples]:
    done = 0
    for block in blocks:
        yield block
        done += block.size
        on_progress(done / total)


def _check_signature(path: Path) -> None:
    from ..bitstream.header import SIGNATURE_BYTES, check_signature

    with path.open("rb") as file:
        start = file.read(SIGNATURE_BYTES)
    try:
        check_signature(start)
    except BitstreamError as error:
        raise BitstreamError(f"{path}: {error}") from error


def _checked_facts(data: bytes, max_hours: float | None) -> FileFacts:
    """What a file says and costs, if it does not claim to be longer than it may be."""
    from ..bitstream.claims import check_claim
    from ..bitstream.container import inspect, read_header

    header, most = read_header(data), None if max_hours is None else 3600 * max_hours
    check_claim(header, len(data), max_seconds=most)  # before the mask is decoded, which takes its time
    info = inspect(data)
    check_claim(header, len(data), info.tokens, most)
    return facts_of(info)


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
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False, soft_wrap=True)
    for path in paths:
        name = str(path or jobs.STREAM)
        try:
            facts = _checked_facts(streams.read_bytes(path, MAX_BYTES), max_hours)
        except (DTMCodecError, OSError) as error:
            line = batch.describe(error)
            located = line if name in str(error) or isinstance(error, OSError) else f"{printable(name)}: {line}"
            errors.print(located, markup=False, style="red")
            records.append({"input": name, "error": line})
            continue
        records.append(({"input": name} if is_batch else {}) | asdict(facts))
        if not as_json:
            table = Table.grid(padding=(0, 2))
            for label, text in [("file", printable(name))] * is_batch + _rows(facts):
                table.add_row(label, escape(text))
            console.print(table)
    failures = sum("error" in record for record in records)
    if as_json and (is_batch or not failures):
        typer.echo(json.dumps(records if is_batch else records[0], indent=2))
    if failures:
        raise typer.Exit(1 if is_batch else 2)


def _rows(facts: FileFacts) -> list[tuple[str, str]]:
    config = _bundled_config(facts.model)
    if config is None:
        return facts.rows
    return [*facts.rows, ("latency", f"{latency_text(config)}, of the bundled {config.name!r} in a stream")]


def _bundled_config(model_id: str) -> CodecConfig | None:
    """Of the bundled model of that name. Its weights are not compared: that would take seconds."""
    from ..config import read_model_config

    paths = sorted((Path(__file__).parents[1] / "pretrained").glob("*/config.json"))
    configs = [read_model_config(path)[0] for path in paths]
    return next((config for config in configs if config.name == model_id.partition(":")[0]), None)


def codec_finder(
    model: str | None, device: str, backend: BackendName | None = None, *, in_torch: bool = False
) -> Callable[[str], DTMCodec]:
    """From a file's model id to the codec that decodes it: the one asked for, or the bundled one of that id."""
    from ..models import hub

    if model is not None:
        chosen = options.load_codec(model, device, backend, in_torch=in_torch)

        def check(model_id: str) -> DTMCodec:
            if model_id != chosen.model_id:
                raise ModelError(f"made by model {model_id!r}; {model!r} is {chosen.model_id!r}")
            return chosen

        return check
    codecs: dict[str, DTMCodec] = {}

    def find(model_id: str) -> DTMCodec:
        if model_id not in codecs:
            bundled = {loaded.model_id: loaded for loaded in map(hub.read_folder, hub.bundled_models().values())}
            if model_id not in bundled:
                known = ", ".join(map(repr, bundled)) or "none"
                raise ModelError(
                    f"made by model {model_id!r}; bundled: {known}; give the folder of its model by --model"
                )
            codecs[model_id] = options.load_codec(bundled[model_id], device, backend, in_torch=in_torch)
        return codecs[model_id]

    return find
