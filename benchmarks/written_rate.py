"""How near files come to the bitrate that is asked for as written, and what that costs.

    python benchmarks/written_rate.py --audio FOLDER --bitrates 450 800 1010

Without --audio, the bundled recordings. Each figure is over all files: the written rate as a share of what was asked,
and passes of Stage 2, of which a nominal bitrate takes one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from dtm_codec import DTMCodec
from dtm_codec.coding.chain import Stage1
from dtm_codec.speech.audio import read_audio, sample_path
from dtm_codec.speech.folders import read_set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio", type=Path, default=sample_path().parent, help="a folder, or a manifest")
    parser.add_argument("--bitrates", type=float, nargs="+", default=[450, 800, 1010])
    parser.add_argument("--model", default="small")
    options = parser.parse_args()
    codec = DTMCodec.from_pretrained(options.model)
    sounds = [read_audio(utterance.audio, codec.config.sample_rate) for utterance in read_set(options.audio)]
    passes, again = [0], Stage1.again

    def counted(stage1: Stage1) -> object:
        passes[0] += 1
        return again(stage1)

    Stage1.again = counted  # type: ignore[method-assign, assignment]
    print(f"{len(sounds)} files, {sum(audio.size / rate for audio, rate in sounds):.0f} s")
    for bitrate in options.bitrates:
        shares, counts, nominal = [], [], []
        seconds = {True: 0.0, False: 0.0}
        for audio, rate in sounds:
            for written in (False, True):
                passes[0], began = 0, time.process_time()
                encoded = codec.encode(audio, rate, bitrate=bitrate, written=written)
                seconds[written] += time.process_time() - began
            info = encoded.to_file("compact", codec.token_model).info
            shares.append((info.mask_bits + info.token_bits_written) / encoded.duration_s / bitrate)
            nominal.append(encoded.bits.total / encoded.duration_s)
            counts.append(passes[0])
        print(
            f"{bitrate:g} bps: {np.mean(shares):.4f} of it written ({min(shares):.4f} ... {max(shares):.4f}), "
            f"{np.mean(nominal):.0f} bps nominal, {np.mean(counts):.1f} passes (at most {max(counts)}), "
            f"{seconds[True] / seconds[False]:.2f} times the processor time of nominal"
        )


if __name__ == "__main__":
    main()
