"""Options that several commands share: which model, at which rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias, TypedDict

import typer

from ..config import SelectorName

if TYPE_CHECKING:
    from ..codec import DTMCodec

Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME|DIR", help="A bundled model ('dtm-codec models'), a model folder, or a hub id."
    ),
]
Bitrate: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="BPS", help="Total bits a second, position bits included, met by each file, unless it is silent."
    ),
]
TokenRate: TypeAlias = Annotated[float | None, typer.Option(metavar="HZ", help="Tokens a second, met by each file.")]
Tau: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="X", help="The selector's own knob; larger keeps fewer tokens. Without it: that of training."),
]
Selector: TypeAlias = Annotated[
    SelectorName | None, typer.Option(help="Choose kept steps by another rule than the model's own.")
]
Device: TypeAlias = Annotated[str, typer.Option(help="Where the model runs: cpu or cuda.")]
Force: TypeAlias = Annotated[bool, typer.Option("--force", "-f", help="Overwrite files that exist.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print results as JSON on standard output.")]


class Rate(TypedDict):
    """What `DTMCodec.encode` is asked for: at most one is a number."""

    bitrate: float | None
    token_rate: float | None
    tau: float | None


def one_rate(bitrate: float | None, token_rate: float | None, tau: float | None) -> Rate:
    """Refuse two requests at once, and numbers that are none, before a model is loaded."""
    given = {"--bitrate": bitrate, "--token-rate": token_rate, "--tau": tau}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other", param_hint=" / ".join(given))
    for name, value in given.items():
        if value is None or not 0 < value < float("inf"):
            raise typer.BadParameter(f"{value}; allowed: a number > 0", param_hint=name)
    return Rate(bitrate=bitrate, token_rate=token_rate, tau=tau)


def load_codec(model: str | None, device: str = "cpu") -> DTMCodec:
    """The model of that name, or the default one."""
    from ..codec import DTMCodec
    from ..hub import DEFAULT_MODEL

    return DTMCodec.from_pretrained(DEFAULT_MODEL if model is None else model, device)
