"""What each selector costs and how well it segments: time, its growth with length, and NMSE (paper Section 4.4).

    python benchmarks/selection.py                                  # log-mel features of the bundled recordings
    python benchmarks/selection.py --model small --audio a.flac b.flac   # Stage-1 vectors, share of encode time
    python benchmarks/selection.py --features z1.npy

Times are CPU time, the least of several runs, statistics and decision together, at N, 2N, 4N and 8N frames, with
the exponent that fits them. tau is calibrated so that each selector keeps the same share of all frames of the set.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from dtm_codec.config import SelectorConfig
from dtm_codec.nn.spectral import mel_filterbank
from dtm_codec.rate.calibration import calibrate
from dtm_codec.selectors import build, nmse
from dtm_codec.speech.audio import read_audio, sample_path

ROWS = {
    "stride": (None,),
    "random": (None,),
    "ple": (None, 4),
    "threshold": (None, 4),
    "peaks": (None, 4),
    "greedy": (None, 4),
    "dp": (4,),
    "lagrangian": (4,),
}
LAWS = {"peaks": "N², blocks", "greedy": "N log N", "dp": "N K, blocks"}
SAMPLE_RATE, HOP = 16_000, 160


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    codec = None
    if arguments.model:
        from dtm_codec import DTMCodec

        codec = DTMCodec.from_pretrained(arguments.model)
    audio = [read_audio(path, SAMPLE_RATE)[0] for path in arguments.audio]
    if arguments.features:
        utterances, source = [load(arguments.features).numpy()], str(arguments.features)
    elif codec is not None:
        utterances, source = [codec.stage1(x, SAMPLE_RATE) for x in audio], f"z1 of {codec.model_id}"
    else:
        utterances, source = [log_mel(torch.from_numpy(x)).numpy() for x in audio], "80-band log-mel"
    joined = np.concatenate(utterances)
    frames = [arguments.frames * factor for factor in (1, 2, 4, 8)]
    repeated = np.tile(joined, (-(-frames[-1] // len(joined)), 1))

    encode_seconds = None
    if codec is not None:
        samples = np.resize(np.concatenate(audio), arguments.frames * codec.config.hop_length)
        encode_seconds = least_time(lambda: codec.encode(samples, SAMPLE_RATE, tau=1.0, selector="ple"), repeats=3)

    table = Table(
        title=f"{source}, {len(joined)} frames in {len(utterances)} utterances; {arguments.threads} thread(s), CPU time"
    )
    for heading in ("selector", "s_max", *(f"ms at {n}" for n in frames), "exponent", "claims", "kept", "NMSE"):
        table.add_column(heading, justify="left" if heading in ("selector", "claims") else "right")
    if encode_seconds is not None:
        table.add_column("of encode", justify="right")
    for name, caps in ROWS.items():
        for s_max in caps:
            selector = build(SelectorConfig.from_dict({"name": name, "s_max": s_max}))
            statistics = [selector.statistics(z) for z in utterances]
            tau = calibrate(selector, statistics, round(arguments.keep_ratio * len(joined))).tau
            mask = np.concatenate([selector.keep(values, tau) for values in statistics])
            seconds = [
                least_time(lambda z=repeated[:n], s=selector, tau=tau: s.keep(s.statistics(z), tau)) for n in frames
            ]
            exponent = np.polyfit(np.log(frames), np.log(seconds), 1)[0]
            row = [name, str(s_max or "none"), *(f"{1e3 * s:.2f}" for s in seconds), f"{exponent:.2f}"]
            row += [LAWS.get(name, "N"), f"{float(mask.mean()):.3f}", f"{nmse(joined, mask):.4f}"]
            if encode_seconds is not None:
                row.append(f"{100 * seconds[0] / encode_seconds:.2f} %")
            table.add_row(*row)
    console = Console(width=140)
    console.print(table)
    if encode_seconds is not None:
        console.print(f"encode of {arguments.frames} frames: {1e3 * encode_seconds:.0f} ms CPU time")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    samples = [sample_path("dashwood"), sample_path("amiable")]
    parser.add_argument(
        "--audio", type=Path, nargs="+", default=samples, help="speech; the bundled recordings if not given"
    )
    parser.add_argument("--model", help="use the Stage-1 vectors of this model, by name or folder")
    parser.add_argument("--features", type=Path, help="an .npy or .pt file of one (N, D) array, instead of audio")
    parser.add_argument("--frames", type=int, default=1500, help="N of the growth law")
    parser.add_argument("--keep-ratio", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def load(path: Path) -> torch.Tensor:
    values = torch.from_numpy(np.load(path)) if path.suffix == ".npy" else torch.load(path, weights_only=True)
    return values.float()


def log_mel(audio: torch.Tensor, bands: int = 80) -> torch.Tensor:
    """Without its mean, which would drown every distance. audio: (T,) -> (N, bands)"""
    spectrum = torch.stft(audio, 4 * HOP, HOP, window=torch.hann_window(4 * HOP), return_complex=True).abs()
    mel = torch.log(mel_filterbank(SAMPLE_RATE, 4 * HOP, bands) @ spectrum + 1e-5).T
    return mel - mel.mean(0)


def least_time(run: Callable[[], object], repeats: int = 7) -> float:
    run()  # compiles
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    main()
