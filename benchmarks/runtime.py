"""onnxruntime against torch on real speech: do masks, codes and audio agree, and how fast is each.

    python benchmarks/runtime.py --model small --data test.jsonl --graphs build/onnx

Every utterance is encoded by each backend at the tau of training and at 800 bps, and what torch encoded is decoded by
each. Times are CPU time on one thread, backends in turns. The graphs of --graphs, if given, are checked by `onnx`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import torch

from dtm_codec import DTMCodec, Encoded
from dtm_codec.evaluation.data import read_data
from dtm_codec.speech.audio import sample_path

OTHERS = ("onnx", "onnx-int8")


@dataclass
class Compared:
    steps: int = 0
    other_steps: int = 0
    """Kept by one and not by the other."""
    tokens: int = 0
    other_codes: int = 0
    """Of utterances with equal masks, and of all tokens of those with other masks."""
    same_masks: int = 0
    utterances: int = 0
    audio: float = 0.0
    """The largest difference of a sample."""
    samples: int = 0
    far_samples: int = 0
    """Farther apart than 1e-3: after a pitch that was a tie, pulses fall elsewhere until the next silence."""
    seconds: dict[str, float] = field(default_factory=lambda: {"encode": 0.0, "decode": 0.0})

    def add(self, reference: Encoded, other: Encoded) -> None:
        self.utterances += 1
        self.steps += reference.mask.size
        self.tokens += reference.codes.size
        different = int(np.sum(reference.mask != other.mask))
        self.other_steps += different
        self.same_masks += different == 0
        theirs = dict(zip(other.positions.tolist(), other.codes.tolist(), strict=True))
        pairs = zip(reference.positions.tolist(), reference.codes.tolist(), strict=True)
        self.other_codes += sum(theirs.get(position) != code for position, code in pairs)


def check_graphs(folder: Path) -> None:
    paths = sorted(folder.rglob("*.onnx"))
    for path in paths:
        onnx.checker.check_model(path, full_check=True)
    print(f"{len(paths)} graphs under {folder} pass onnx.checker")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small")
    parser.add_argument("--data", default=str(sample_path().parent), help="manifest or folder; default: the samples")
    parser.add_argument("--graphs", type=Path, help="folder of exported graphs to check")
    parser.add_argument("--limit", type=int, help="utterances, spread over the set")
    arguments = parser.parse_args()
    if arguments.graphs:
        check_graphs(arguments.graphs)
    torch.set_num_threads(1)
    codecs = {name: DTMCodec.from_pretrained(arguments.model, backend=name) for name in ("torch", *OTHERS)}
    for codec in codecs.values():
        codec.backend.use_threads(1)
        codec.decode(codec.encode(np.zeros(16_000, np.float32), 16_000))  # loads all graphs
    results = {name: Compared() for name in codecs}
    rate, seconds = codecs["torch"].config.sample_rate, 0.0
    utterances = list(read_data(arguments.data))
    if arguments.limit and arguments.limit < len(utterances):
        chosen = np.linspace(0, len(utterances) - 1, arguments.limit).round().astype(int)
        utterances = [utterances[index] for index in np.unique(chosen)]
    for utterance in utterances:
        audio, _ = utterance.read(rate)
        seconds += 2 * audio.size / rate
        for bitrate in (None, 800):
            reference, speech = None, None
            for name, codec in codecs.items():
                result = results[name]
                began = time.process_time()
                encoded = codec.encode(audio, rate, bitrate=bitrate)
                middle = time.process_time()
                reference = reference or encoded
                decoded = codec.decode(reference)
                result.seconds["decode"] += time.process_time() - middle
                result.seconds["encode"] += middle - began
                speech = decoded if speech is None else speech
                result.add(reference, encoded)
                difference = np.abs(decoded - speech)
                result.audio = max(result.audio, float(difference.max()))
                result.samples += difference.size
                result.far_samples += int((difference > 1e-3).sum())
    print(f"{arguments.model}: {len(utterances)} utterances, twice, {seconds:.0f} s of speech in all, one thread\n")
    counted = ("other steps", "other tokens", "of", "same masks", "audio, at most", "beyond 1e-3")
    columns = (*counted, "encode RTF", "decode RTF")
    print(f"| backend | {' | '.join(columns)} |")
    print(f"|---|{'--:|' * len(columns)}")
    for name, result in results.items():
        times = " | ".join(f"{result.seconds[part] / seconds:.4f}" for part in ("encode", "decode"))
        far = f"{100 * result.far_samples / result.samples:.3f} %"
        masks = f"{result.same_masks} of {result.utterances}"
        counts = f"{result.other_steps} | {result.other_codes} | {result.tokens}"
        print(f"| {name} | {counts} | {masks} | {result.audio:.1e} | {far} | {times} |")


if __name__ == "__main__":
    main()
