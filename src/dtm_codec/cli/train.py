"""`dtm-codec train`, `export`, `prepare` and `shard`: from speech to a model that others can use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from . import options, terminal


def train(
    config: Annotated[Path, typer.Argument(help="Run to do, as YAML: see configs/.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Settings to change, as in optimizer.lr=3e-4.", metavar="[KEY=VALUE]...", show_default=False
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Folder of audio, JSON-lines manifest, or tar shards. Default: data.train of the config."),
    ] = None,
    dev: Annotated[
        str | None, typer.Option(help="Folder or manifest to score on while training. Default: data.dev of the config.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the run. Default: runs/NAME.", show_default=False)
    ] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None,
        typer.Option(help="Where to train. Default: accelerator of the config.", show_default=False),
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Stop after this many steps in all.", min=1)] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="Be done after this many minutes, checkpoint and export included.", min=0)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint of the run, if any.")
    ] = False,
) -> None:
    """Train a codec. Ctrl-C ends it cleanly; --resume goes on as if it had never stopped."""
    import json
    import math
    import time

    started = time.monotonic()  # loading torch takes seconds
    from ..backends import check_device
    from ..training.config import load_config
    from ..training.run import EXPORT
    from ..training.run import train as run

    if device not in (None, "auto"):
        check_device(device)
    changes = list(overrides or ())
    given = {"data.train": data, "data.dev": dev, "max_steps": max_steps, "accelerator": device}
    for key, value in given.items():
        if value is not None:
            changes.append(f"{key}={json.dumps(value)}")
    settings = load_config(config, changes)
    folder = output or Path("runs") / settings.model.name
    minutes = math.inf if max_minutes is None else max_minutes - (time.monotonic() - started) / 60
    last = run(settings, folder, resume=resume, max_minutes=minutes)
    terminal.say(last)
    terminal.say(f"{folder / EXPORT}: the model. Next: dtm-codec encode speech.wav --model {folder / EXPORT}")


def export(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT|MODEL", help="Checkpoint, or folder of a run; with --onnx a model.", show_default=False
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the model.", show_default=False)],
    name: Annotated[
        str | None, typer.Option(help="What to call the model, here and in its files. [default: as trained]")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Folder or manifest of speech to take token statistics from, for compact files."),
    ] = None,
    minutes: Annotated[float, typer.Option(help="How much of it.", min=0.1)] = 60.0,
    device: options.Device = "cpu",
    whole_window: Annotated[
        bool, typer.Option("--whole-window", help="Without limits of look-ahead, if it was trained for both.")
    ] = False,
    blend: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL=SHARE",
            help="Average with so much of another model, such as the one that the run began with: small=0.5.",
        ),
    ] = None,
    discriminators: Annotated[
        bool, typer.Option("--discriminators", help="Add discriminators.safetensors, for fine-tuning.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Add training.safetensors: optimizers and discriminators too.")
    ] = False,
    half: Annotated[bool, typer.Option("--half", help="Store weights as 16-bit floats.")] = False,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write a model (a name or folder) as ONNX graphs; needs no torch.")
    ] = False,
    precision: Annotated[
        Literal["fp32", "fp16", "int8"] | None,
        typer.Option(help="Of the weights in ONNX graphs. [default: fp32]", show_default=False),
    ] = None,
) -> None:
    """Write a trained model for inference: averaged weights as safetensors and their configuration; or a model as ONNX
    graphs."""
    if onnx:
        given = {
            "--name": name,
            "--data": data,
            "--whole-window": whole_window,
            "--blend": blend,
            "--discriminators": discriminators,
            "--full": full,
            "--half": half,
        }
        if others := [option for option, value in given.items() if value]:
            raise typer.BadParameter("not with --onnx; allowed: --precision", param_hint=" / ".join(others))
        _export_onnx(checkpoint, output, precision or "fp32")
        return
    if precision is not None:
        raise typer.BadParameter("only with --onnx", param_hint="--precision")
    import torch

    from ..training.publishing import export as publish

    dtype = torch.float16 if half else torch.float32
    with terminal.progress_bar("export") as bar:
        model_id = publish(
            checkpoint,
            output,
            name=name,
            data=data,
            minutes=minutes,
            device=device,
            whole_window=whole_window,
            blend=None if blend is None else _model_and_share(blend),
            discriminators=discriminators,
            full=full,
            dtype=dtype,
            on_progress=bar.share,
        )
    terminal.say(model_id)


def _model_and_share(text: str) -> tuple[str, float]:
    model, _, share = text.rpartition("=")
    try:
        return model or text, float(share)
    except ValueError:
        raise typer.BadParameter(f"{text!r}; allowed: MODEL=SHARE, as small=0.5", param_hint="--blend") from None


def _export_onnx(model: str, output: Path, precision: Literal["fp32", "fp16", "int8"]) -> None:
    from ..backends.onnx.export import export_graphs
    from ..models import hub

    loaded = hub.load(model)
    with terminal.progress_bar("export"):
        sizes = export_graphs(loaded, output, precision)
    for name, size in sizes.items():
        terminal.say(f"{output / name}: {size / 1e6:.2f} MB")
    terminal.say(f"{loaded.model_id}, {precision}: {sum(sizes.values()) / 1e6:.1f} MB in all")


def prepare(
    corpus: Annotated[Literal["librispeech", "mls"], typer.Argument(help="How the files lie.", show_default=False)],
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER...", help="Where they lie, unpacked: subsets, or all.", show_default=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Manifest to write (.jsonl).", show_default=False)],
) -> None:
    """Write a manifest of a corpus: path, duration, text and speaker of every recording."""
    from ..training.prepare import prepare as write_manifest

    with terminal.progress_bar("recordings") as bar:
        count = write_manifest(corpus, folders, output, on_progress=bar)
    terminal.say(f"{count} recordings in {output}")


def shard(
    manifest: Annotated[Path, typer.Argument(help="Manifest (.jsonl) to pack.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the shards.", show_default=False)],
    per_shard: Annotated[int, typer.Option(help="Recordings in each.", min=1)] = 1_000,
) -> None:
    """Pack the recordings of a manifest into tar shards (WebDataset), for training on a cluster."""
    from ..training.prepare import write_shards

    with terminal.progress_bar("recordings") as bar:
        count = write_shards(manifest, output, per_shard, on_progress=bar)
    terminal.say(f"{count} shards in {output}")
