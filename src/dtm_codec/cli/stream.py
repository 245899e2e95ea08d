"""`stream encode` and `stream decode`: speech through pipes while it is being spoken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BitstreamError
from . import options, terminal
from .commands import Commands
from .dtm_files import codec_finder

if TYPE_CHECKING:
    from ..live.encoder import StreamEncoder
    from ..speech.pipes import PipeAudio

stream = Commands(help="Speech to packets and back while it is being spoken.", no_args_is_help=True)


@stream.command()
def encode(
    model: Annotated[
        str | None,
        options.model_option(
            "A bundled model, a folder or a hub id, instead of 'small-live'. One that looks ahead without a limit "
            "makes packets wait."
        ),
    ] = None,
    bitrate: Annotated[
        float | None,
        options.bitrate_option(
            "Total bits a second, position bits included and 24 of each packet's header not, "
            "held over any 2 s within 15 %"
        ),
    ] = None,
    token_rate: options.TokenRate = None,
    tau: options.Tau = None,
    packet_ms: Annotated[int, typer.Option(metavar="MS", help="Length of a packet: 40, 80 or 160 ms.")] = 80,
    rate: options.RawRate = None,
    channels: options.RawChannels = None,
    sample_format: options.RawForm = None,
    device: options.Device = "cpu",
) -> None:
    """Speech on standard input to packets on standard output."""
    from ..live.packets import write_record
    from ..models.hub import LIVE_MODEL
    from ..speech.pipes import open_pipe

    asked, raw = options.one_rate(bitrate, token_rate, tau), options.raw_format(rate, channels, sample_format)
    codec = options.load_codec(model or LIVE_MODEL, device, in_torch=True)
    steps = tokens = 0
    with _until_reader_leaves():
        audio = open_pipe(sys.stdin.buffer, raw)
        encoder = codec.stream_encoder(**asked, packet_ms=packet_ms, sample_rate=audio.sample_rate)
        _warn(options.rate_warning(codec, asked))
        form, out = encoder.format, sys.stdout.buffer
        write_record(out, encoder.start)
        out.flush()
        for packets in _all_packets(encoder, audio):
            for packet in packets:
                write_record(out, packet)
                if tau is not None:
                    mask = form.read(packet).mask
                    steps, tokens = steps + mask.size, tokens + int(mask.sum())
            out.flush()
    if steps:  # only now is it known what a tau came to
        _warn(options.rate_warning(codec, asked, form.layout.bitrate(tokens / steps * form.layout.frame_rate)))


def _all_packets(encoder: StreamEncoder, audio: PipeAudio) -> Iterator[list[bytes]]:
    for samples in audio.blocks():
        yield encoder.push(samples)
    yield encoder.flush()


def _warn(warning: str | None) -> None:
    if warning:
        terminal.complain(f"dtm-codec: warning: {warning}")


@stream.command()
def decode(
    model: Annotated[
        str | None,
        options.model_option("The model that made the stream, if it is not a bundled one."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Mono 16-bit samples at the model's rate, not WAV.")] = False,
    wait: Annotated[int, typer.Option(metavar="N", help="Packets to hold back for one that is missing.")] = 0,
    device: options.Device = "cpu",
) -> None:
    """Packets on standard input to speech on standard output. What is missing or damaged is filled."""
    from ..live.packets import StreamFormat, read_record
    from ..speech.pipes import pcm_bytes, wav_header

    start = read_record(sys.stdin.buffer)
    if start is None:
        raise BitstreamError("standard input is empty; allowed: what `dtm-codec stream encode` writes")
    codec = codec_finder(model, device, in_torch=True)(StreamFormat.from_start(start).model_id)
    decoder = codec.stream_decoder(start, wait=wait)
    refused = 0
    with _until_reader_leaves():
        out = sys.stdout.buffer
        if not raw:
            out.write(wav_header(codec.config.sample_rate))
            out.flush()
        try:
            while (record := read_record(sys.stdin.buffer)) is not None:
                try:
                    out.write(pcm_bytes(decoder.push(record)))
                except BitstreamError:
                    refused += 1  # as if it were lost
                out.flush()
        finally:
            out.write(pcm_bytes(decoder.flush()))
            out.flush()
    if refused or decoder.given_up or decoder.dropped:
        facts = f"{decoder.received} packets decoded, {decoder.given_up} missing, {decoder.dropped} twice or too late"
        terminal.complain(f"dtm-codec: {facts}, {refused} refused")


@contextmanager
def _until_reader_leaves() -> Iterator[None]:
    """A reader that goes away ends the stream. One that only stops reading makes us wait, and nothing piles up."""
    try:
        yield
    except BrokenPipeError:
        sys.stdout = None  # Python would flush it at exit, and complain
        raise typer.Exit(0) from None
