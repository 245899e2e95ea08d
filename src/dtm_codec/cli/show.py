"""`show`: a picture of where the tokens of an utterance go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import batch, jobs, options
from .facts import facts_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..codec import DTMCodec


def show(
    audio: Annotated[str, typer.Argument(metavar="AUDIO", help="An audio file, a folder, a glob, or - for stdin.")],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="PNG|DIR", help="A .png, .svg or .pdf file, or a folder. Default: beside AUDIO."
        ),
    ] = None,
    model: options.Model = None,
    bitrate: options.Bitrate = None,
    token_rate: options.TokenRate = None,
    tau: options.Tau = None,
    quality: options.QualityOption = None,
    written: options.Written = None,
    selector: options.Selector = None,
    rate: options.RawRate = None,
    channels: options.RawChannels = None,
    sample_format: options.RawForm = None,
    device: options.Device = "cpu",
    backend: options.Backend = None,
    start: Annotated[float, typer.Option(metavar="S", min=0, help="Begin at this second.")] = 0.0,
    seconds: Annotated[float, typer.Option(metavar="S", min=0.01, help="Show at most this much.")] = 12.0,
    force: options.Force = False,
) -> None:
    """Draw spectrograms before and after, the kept steps, the local token rate and the path length."""
    from ..speech.audio import READ_SUFFIXES, audio_info, breaks_off, read_audio

    nominal = options.one_rate(bitrate, token_rate, tau)
    wanted = options.FileRate.of(nominal, quality, written)
    raw = jobs.only_standard_input([audio], options.raw_format(rate, channels, sample_format))
    work = jobs.plan([audio], output, jobs.Conversion(READ_SUFFIXES, (".png", ".svg", ".pdf"), beside=".png"))

    def prepare() -> Callable[[batch.Task], batch.Outcome]:
        import numpy as np

        from ..plotting import Picture, render

        codec = options.load_codec(model, device, backend)
        sample_rate, asked = codec.config.sample_rate, wanted.asked(codec, selector)

        def convert(task: batch.Task) -> batch.Outcome:
            job, source = task.job, task.source(raw)
            original = audio_info(source)
            shown = min(seconds, original.duration_s)
            offset, frames = int(start * original.sample_rate), max(1, round(shown * original.sample_rate))
            samples, _ = read_audio(source, sample_rate, offset=offset, frames=frames)
            if lost := breaks_off(samples.size / sample_rate, min(seconds, original.promised_s - start)):
                task.warnings.append(lost)
            tell = task.on_progress
            encoded = codec.encode(
                samples, sample_rate, **asked, selector=selector, on_progress=lambda done: tell(done / 2)
            )
            blocks = batch.watched(codec.decode_blocks(encoded), samples.size, lambda done: tell((1 + done) / 2))
            decoded = np.concatenate(list(blocks))
            facts = facts_of(encoded.to_file("compact", codec.token_model).info)
            chosen = selector or codec.config.selector.name
            path = _path(codec, samples, tau, encoded.codes.size)
            parts = f"{facts.content_bps:.0f} content + {facts.position_bps:.0f} position"
            picture = Picture(
                title=f"{Path(job.name).name} · {encoded.model_id} · {chosen} · {facts.written_bps:.0f} bps written, "
                f"{facts.total_bps:.0f} nominal = {parts}",
                original=samples,
                reconstruction=decoded,
                sample_rate=sample_rate,
                mask=encoded.mask,
                frame_rate=codec.config.frame_rate,
                path=path.length,
                tau=path.tau if chosen == "ple" else None,
                start_s=offset / original.sample_rate,
            )
            task.write(render(picture, job.target.suffix[1:].lower() if job.target else "png"))
            task.warn(options.rate_warning(codec, nominal, facts.total_bps))
            line = f"{facts.duration_s:.2f} of {original.duration_s:.2f} s, {facts.tokens} of {facts.steps} steps kept"
            return batch.Outcome(line, {})

        return convert

    batch.run(work, prepare, force=force, as_json=False)


@dataclass(frozen=True)
class _Path:
    """The way that an utterance takes through feature space."""

    length: npt.NDArray[np.float64]
    """(N,) S_t of Algorithm 1"""
    tau: float | None
    """Path length per kept step; None for a model that is not PLE's."""


def _path(codec: DTMCodec, samples: npt.NDArray[np.float32], tau: float | None, tokens: int) -> _Path:
    """The path as the model's own PLE sees it, or as PLE would see its z1; without `tau`, by the one that gives
    `tokens`."""
    import numpy as np

    from ..rate.calibration import calibrate
    from ..selectors import PLE

    if codec.config.selector.name != "ple":
        steps = PLE().statistics(codec.stage1(samples, codec.config.sample_rate))
        return _Path(np.cumsum(steps[:, 0], dtype=np.float64), None)
    steps = codec.selector_statistics(samples, codec.config.sample_rate)
    if tau is None:  # a rate was met by calibration: find the same one again
        tau = calibrate(codec.backend.selector, [steps], tokens).tau
    return _Path(np.cumsum(steps[:, 0], dtype=np.float64), tau)
