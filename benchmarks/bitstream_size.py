"""What `.dtm` files of real speech cost: nominal, raw and compact; mask and tokens before and after coding.

    python benchmarks/bitstream_size.py [--model small] [--bitrate 400 800 1280] [AUDIO ...]

Each recording is encoded at each bitrate; rates are total bits over total duration. Without AUDIO, the bundled samples.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from dtm_codec import DTMCodec
from dtm_codec.speech.audio import read_audio, sample_path

COLUMNS = (
    "bps nominal",
    "raw bytes",
    "compact bytes",
    "saved",
    "mask bits/step",
    "token bits/token",
    "overhead bytes/file",
)


def row(codec: DTMCodec, recordings: Sequence[npt.NDArray[np.float32]], bitrate: float) -> list[str]:
    encoded = codec.encode(list(recordings), codec.config.sample_rate, bitrate=bitrate)
    raw = sum(len(codec.to_bytes(e, "raw")) for e in encoded)
    information = [e.to_file("compact", codec.token_model).info for e in encoded]
    compact = sum(i.file_bytes for i in information)
    steps, tokens = (sum(getattr(i, name) for i in information) for name in ("steps", "tokens"))
    mask = sum(i.mask_bits for i in information) / steps
    token = sum(i.token_bits_written for i in information) / tokens
    return [
        f"{sum(e.bits.total for e in encoded) / sum(e.duration_s for e in encoded):.1f}",
        str(raw),
        str(compact),
        f"{1 - compact / raw:.1%}",
        f"1 -> {mask:.3f}",
        f"{codec.layout.token_bits} -> {token:.2f}",
        f"{sum(i.overhead_bytes for i in information) / len(information):.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", nargs="*", type=Path, metavar="AUDIO")
    parser.add_argument("--model", default="small")
    parser.add_argument("--bitrate", type=float, nargs="+", default=[400, 800, 1280])
    options = parser.parse_args()
    codec = DTMCodec.from_pretrained(options.model)
    paths = options.audio or [sample_path("dashwood"), sample_path("amiable")]
    recordings = [read_audio(path, codec.config.sample_rate)[0] for path in paths]
    seconds = sum(x.size for x in recordings) / codec.config.sample_rate
    table = Table(title=f"{codec.model_id}, {len(recordings)} recordings, {seconds:.0f} s")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for bitrate in options.bitrate:
        table.add_row(*row(codec, recordings, bitrate))
    Console().print(table)


if __name__ == "__main__":
    main()
