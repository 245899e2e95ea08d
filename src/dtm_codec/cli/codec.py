"""`encode`, `decode` and `info`: speech to `.dtm` files and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..errors import BitstreamError, ModelError
from . import batch, options
from .facts import facts_of

if TYPE_CHECKING:
    from ..codec import DTMCodec

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
    selector: options.Selector = None,
    effort: options.Effort = 0,
    device: options.Device = "cpu",
    raw: Annotated[
        bool, typer.Option("--raw", help="One bit a step and fixed-width tokens, as the paper counts, not compact.")
    ] = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Turn speech (WAV, FLAC, OGG, MP3, any rate and channels) into .dtm files."""
    from ..speech.audio import READ_SUFFIXES, audio_info, read_audio

    rate = options.one_rate(bitrate, token_rate, tau)
    work = batch.plan(inputs, output, batch.Conversion(READ_SUFFIXES, (DTM,), beside=DTM))

    def prepare() -> Callable[[batch.Job], batch.Outcome]:
        codec = options.load_codec(model, device)

        def convert(job: batch.Job) -> batch.Outcome:
            source = job.read()
            audio, _ = read_audio(source, codec.config.sample_rate)
            encoded = codec.encode(
                audio, codec.config.sample_rate, **rate, selector=selector, effort=effort, on_progress=job.report
            )
            file = encoded.to_file("raw" if raw else "compact", codec.token_model)
            job.write(file.data)
            facts, original = facts_of(file.info), audio_info(source)
            line = f"{facts.rate_line}, {len(file.data)} bytes"
            if original.sample_rate != codec.config.sample_rate:
                line += f"; resampled from {original.sample_rate} to {codec.config.sample_rate} Hz"
            if original.channels > 1:
                line += f"; {original.channels} channels mixed to mono"
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
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Turn .dtm files back into speech (16-bit WAV or FLAC)."""
    from ..bitstream.container import inspect
    from ..speech.audio import WRITE_FORMATS, audio_bytes

    work = batch.plan(inputs, output, batch.Conversion((DTM,), tuple(WRITE_FORMATS), beside=".decoded.wav"))

    def prepare() -> Callable[[batch.Job], batch.Outcome]:
        codec_for = _codec_finder(model, device)

        def convert(job: batch.Job) -> batch.Outcome:
            data = _bytes_of(job.read())
            facts = facts_of(inspect(data))
            codec = codec_for(facts.model)
            audio = codec.decode(codec.from_bytes(data))
            sample_rate = codec.config.sample_rate
            job.write(audio_bytes(audio, sample_rate, job.target.suffix if job.target else ".wav"))
            line = f"{facts.duration_s:.2f} s at {sample_rate} Hz by {facts.model}"
            record = {"sample_rate": sample_rate}
            return batch.Outcome(line, asdict(facts) | record)

        return convert

    batch.run(work, prepare, force=force, as_json=as_json)


def info(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .dtm file, or - for stdin.")],
    as_json: options.Json = False,
) -> None:
    """What a .dtm file holds and what it costs; needs no model."""
    from ..bitstream.container import inspect

    job = batch.Job(None if file == batch.STREAM else Path(file), None)
    try:
        facts = facts_of(inspect(_bytes_of(job.read())))
    except BitstreamError as error:
        raise BitstreamError(f"{job.name}: {error}") from error
    if as_json:
        typer.echo(json.dumps(asdict(facts), indent=2))
        return
    table = Table.grid(padding=(0, 2))
    for label, text in facts.rows:
        table.add_row(label, text)
    Console(highlight=False).print(table)


def _bytes_of(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


def _codec_finder(model: str | None, device: str) -> Callable[[str], DTMCodec]:
    """From a file's model id to the codec that decodes it: the one asked for, or the bundled one of that id."""
    if model is not None:
        chosen = options.load_codec(model, device)

        def check(model_id: str) -> DTMCodec:
            if model_id != chosen.model_id:
                raise ModelError(f"made by model {model_id!r}; {model!r} is {chosen.model_id!r}")
            return chosen

        return check
    loaded: dict[str, DTMCodec] = {}

    def find(model_id: str) -> DTMCodec:
        if model_id not in loaded:
            from .. import hub

            bundled = {hub.read_folder(folder).model_id: name for name, folder in hub.bundled_models().items()}
            if model_id not in bundled:
                known = ", ".join(map(repr, bundled)) or "none"
                raise ModelError(
                    f"made by model {model_id!r}; bundled: {known}; give the folder of its model by --model"
                )
            loaded[model_id] = options.load_codec(bundled[model_id], device)
        return loaded[model_id]

    return find
