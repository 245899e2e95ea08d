"""Options that several commands share: which model, at which rate, on which device."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

import typer

from ..config import DEFAULT_QUALITY, BackendName, Quality, SelectorName
from ..errors import ConfigError
from ..specs import whole_number
from ..speech.raw import RawFormat, SampleFormat
from ..system import threads

if TYPE_CHECKING:
    from ..codec import DTMCodec
    from ..models.hub import LoadedModel


def _positive(allowed: str, **units: float) -> Callable[[str], float]:
    """A parser of numbers > 0 that may have a unit behind them, in upper or lower case."""

    def parse(text: str) -> float:
        lower = text.strip().lower()
        unit = max((unit for unit in units if lower.endswith(unit)), key=len, default="")
        try:
            value = float(lower.removesuffix(unit)) * units.get(unit, 1)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise typer.BadParameter(f"{text!r}; allowed: {allowed}")
        return value

    return parse


bitrate = _positive("a number > 0 of bits a second, as 800, 800bps or 0.8k", bps=1, k=1000, kbps=1000)


def lengths(text: str) -> list[float]:
    """Seconds, joined by commas."""
    length = _positive("numbers > 0 of seconds, joined by commas")
    return [length(part) for part in text.split(",") if part.strip()]


def _whole(text: str) -> int:
    try:
        return whole_number(str(text), "N")
    except ConfigError:
        raise typer.BadParameter(f"{text!r}; allowed: a whole number >= 0") from None


def bitrate_option(what: str) -> Any:
    """`--bitrate`. what: which bits are counted, and how well they are met"""
    return typer.Option("--bitrate", "-b", metavar="BPS", parser=bitrate, help=f"{what}: 800, 800bps or 0.8k.")


def model_option(what: str) -> Any:
    """The option --model of a command, and what the model is for there."""
    return typer.Option("--model", "-m", metavar="NAME|DIR", help=what)


Model: TypeAlias = Annotated[
    str | None,
    model_option("A bundled model ('dtm-codec models'), a model folder, or a hub id."),
]
Bitrate: TypeAlias = Annotated[
    float | None,
    bitrate_option("Total bits a second, position bits included, met by each file, unless it is silent"),
]
NominalBitrate: TypeAlias = Annotated[
    float | None,
    bitrate_option(
        "Total bits a second by the paper's Eq. 5, before entropy coding, met by each file, unless it is silent"
    ),
]
TokenRate: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="HZ",
        parser=_positive("a number > 0 of tokens a second, as 50 or 50Hz", hz=1),
        help="Tokens a second, met as a bitrate is.",
    ),
]
Tau: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        parser=_positive("a number > 0"),
        help="The selector's own knob; larger keeps fewer tokens. Without it: that of training.",
    ),
]
QualityOption: TypeAlias = Annotated[
    Quality | None,
    typer.Option("--quality", "-q", help="A bitrate by name. Without any rate: normal. 'small': 450, 800, 1010 bps."),
]
Written: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--written/--nominal",
        help="What a bitrate counts: the compact file without its header, or the paper's Eq. 5, before entropy coding.",
        show_default="written",
    ),
]
Selector: TypeAlias = Annotated[
    SelectorName | None, typer.Option(help="Choose kept steps by another rule than the model's own.")
]
Effort: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=_whole,
        help="Other codes to try for every token, to come nearer to the original. Each takes about nine times as long "
        "as encoding without.",
    ),
]
RawRate: TypeAlias = Annotated[
    int | None,
    typer.Option("--rate", metavar="HZ", help="Standard input is samples of this rate without a header."),
]
RawChannels: TypeAlias = Annotated[
    int | None, typer.Option("--channels", metavar="N", help="With --rate: interleaved channels.", show_default="1")
]
RawForm: TypeAlias = Annotated[
    SampleFormat | None, typer.Option("--format", help="With --rate: what a sample is.", show_default="s16le")
]
Device: TypeAlias = Annotated[str, typer.Option(help="Where networks run: cpu or cuda.")]
MaxHours: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--max-hours",
        metavar="H",
        parser=_positive("a number > 0 of hours"),
        help="Take files that claim to last up to this long. Without it: 10 minutes, and a second more for every token "
        "and every 4 bytes.",
    ),
]


def _backend(quickest: BackendName) -> Any:
    return typer.Option(
        help=f"What computes. [default: {quickest} where it can do what is asked, else torch]", show_default=False
    )


Backend: TypeAlias = Annotated[BackendName | None, _backend("onnx-int8")]
BackendOfTokens: TypeAlias = Annotated[BackendName | None, _backend("onnx")]
"""Of a command whose tokens are the product."""
Force: TypeAlias = Annotated[bool, typer.Option("--force", "-f", help="Overwrite files that exist.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print results as JSON on standard output.")]


class Rate(TypedDict):
    """What `DTMCodec.encode` is asked for: at most one is a number."""

    bitrate: float | None
    token_rate: float | None
    tau: float | None


def one_rate(bitrate: float | None, token_rate: float | None, tau: float | None) -> Rate:
    """Refuse two requests at once before a model is loaded."""
    given = {"--bitrate": bitrate, "--token-rate": token_rate, "--tau": tau}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise typer.BadParameter(f"{' and '.join(names)} exclude each other", param_hint=" / ".join(names))
    return Rate(bitrate=bitrate, token_rate=token_rate, tau=tau)


@dataclass(frozen=True)
class FileRate:
    """What is asked of files, which have a rate as written too: `encode` and `show`."""

    rate: Rate
    quality: Quality | None
    written: bool | None

    @classmethod
    def of(cls, rate: Rate, quality: Quality | None, written: bool | None) -> FileRate:
        """Refuse what excludes each other before a model is loaded."""
        given = [f"--{name.replace('_', '-')}" for name, value in rate.items() if value is not None]
        if given and quality is not None:
            names = ["--quality", *given]
            raise typer.BadParameter(f"{' and '.join(names)} exclude each other", param_hint=" / ".join(names))
        if written and given and rate["bitrate"] is None:
            raise typer.BadParameter(f"--written with {given[0]}; allowed: with --bitrate or --quality")
        return cls(rate, quality, written)

    def asked(self, codec: DTMCodec, selector: str | None) -> dict[str, Any]:
        """Arguments for `DTMCodec.encode`. A fixed rate is the model's own where nothing else is asked for."""
        fixed = (selector or codec.config.selector.name) == "stride"
        quality = self.quality
        if all(value is None for value in self.rate.values()) and not fixed:
            quality = quality or DEFAULT_QUALITY
        counted = self.rate["bitrate"] is not None or quality is not None
        written = bool(self.written) if fixed else counted and self.written is not False
        return {**self.rate, "quality": quality, "written": written}


def raw_format(rate: int | None, channels: int | None, form: SampleFormat | None) -> RawFormat | None:
    """What standard input holds, if it has no header."""
    if rate is None:
        if channels is not None or form is not None:
            raise typer.BadParameter("--channels and --format describe samples without a header; give their --rate too")
        return None
    return RawFormat(rate, 1 if channels is None else channels, form or "s16le")


def load_codec(
    model: str | LoadedModel | None, device: str = "cpu", backend: BackendName | None = None, *, in_torch: bool = False
) -> DTMCodec:
    """The model of that name, or the default one. It computes with as many threads as cores are free.

    in_torch: what is asked for needs torch.
    """
    from ..backends import quickest
    from ..codec import DTMCodec
    from ..models import hub

    loaded = model if isinstance(model, hub.LoadedModel) else hub.load(hub.DEFAULT_MODEL if model is None else model)
    codec = DTMCodec.from_loaded(loaded, device, backend or quickest(loaded, device, in_torch=in_torch))
    if "OMP_NUM_THREADS" not in os.environ:
        codec.backend.use_threads(threads.free_cores())
    return codec


RATE_TOLERANCE = 1.1
"""A model still does what it was trained for this factor beyond its range."""


def rate_warning(model: DTMCodec | LoadedModel, rate: Rate, achieved_bps: float | None = None) -> str | None:
    """A line for users who ask for a rate outside of the range of training. achieved_bps: what it came to

    What was asked for counts, since silence may take less. A tau says nothing about bits before something is encoded.
    """
    from ..models.hub import LoadedModel

    trained = model.bitrates if isinstance(model, LoadedModel) else model.trained_bitrates
    asked = rate["bitrate"] if rate["tau"] is None else achieved_bps
    if rate["token_rate"] is not None:
        asked = model.config.layout.bitrate(rate["token_rate"])
    if asked is None or trained is None or trained[0] / RATE_TOLERANCE <= asked <= trained[1] * RATE_TOLERANCE:
        return None
    return (
        f"{asked:.0f} bps; {model.config.name!r} was trained at {trained[0]:.0f} ... {trained[1]:.0f} bps "
        "and is poor elsewhere"
    )
