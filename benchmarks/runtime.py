"""onnxruntime against torch on real speech: do masks, codes and audio agree, and how fast is each.

    python benchmarks/runtime.py --model small --data test.jsonl --graphs build/onnx

Every utterance is encoded by each backend at the tau of training and at 800 bps, and what torch encoded is decoded by
each. Times are CPU time on one thread, backends in turns; those of the page are of its workers. The graphs of
--graphs, if given, are checked by `onnx`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch

from dtm_codec import DTMCodec, Encoded
from dtm_codec.evaluation import systems
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.systems import Coded
from dtm_codec.speech.audio import Samples, sample_path
from dtm_codec.speech.utterance import Utterance

OTHERS = ("onnx", "onnx-int8")


@dataclass
class Compared:
    utterances: int = 0
    same_masks: int = 0
    tokens: int = 0
    other_steps: int = 0
    """Kept by one and not by the other."""
    other_tokens: int = 0
    """At another place, or with another code."""
    audio: float = 0.0
    """The largest difference of a sample."""
    far_samples: int = 0
    """Farther apart than 1e-3: after a pitch that was a tie, pulses fall elsewhere until the next silence."""
    samples: int = 0
    seconds: float = 0.0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0

    def add(
        self, reference: Encoded, other: Encoded, speech: Samples, decoded: Samples, times: tuple[float, float]
    ) -> None:
        """What torch and another made of an utterance, and what both decoded from torch's tokens."""
        self.utterances += 1
        self.tokens += reference.codes.size
        different = int(np.sum(reference.mask != other.mask))
        self.other_steps += different
        self.same_masks += different == 0
        theirs = dict(zip(other.positions.tolist(), other.codes.tolist(), strict=True))
        pairs = zip(reference.positions.tolist(), reference.codes.tolist(), strict=True)
        self.other_tokens += sum(theirs.get(position) != code for position, code in pairs)
        difference = np.abs(decoded - speech)
        self.audio = max(self.audio, float(difference.max()))
        self.far_samples += int((difference > 1e-3).sum())
        self.samples += difference.size
        self.seconds += reference.duration_s
        self.encode_seconds += times[0]
        self.decode_seconds += times[1]

    def cells(self) -> list[str]:
        counts = [str(count) for count in (self.other_steps, self.other_tokens, self.tokens)]
        masks = f"{self.same_masks} of {self.utterances}"
        far = f"{100 * self.far_samples / self.samples:.3f} %"
        times = [f"{spent / self.seconds:.4f}" for spent in (self.encode_seconds, self.decode_seconds)]
        return [*counts, masks, f"{self.audio:.1e}", far, *times]


def check_graphs(folder: Path) -> None:
    paths = sorted(folder.rglob("*.onnx"))
    for path in paths:
        onnx.checker.check_model(path, full_check=True)
    print(f"{len(paths)} graphs under {folder} pass onnx.checker")


def chosen(data: str, limit: int | None) -> list[Utterance]:
    """Utterances spread over the set."""
    utterances = list(read_data(data))
    if limit is None or limit >= len(utterances):
        return utterances
    return [utterances[index] for index in np.unique(np.linspace(0, len(utterances) - 1, limit).round().astype(int))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small")
    parser.add_argument("--data", default=str(sample_path().parent), help="manifest or folder; default: the samples")
    parser.add_argument("--graphs", type=Path, help="folder of exported graphs to check")
    parser.add_argument("--limit", type=int, help="utterances, spread over the set")
    parser.add_argument("--page", action="store_true", help="and the page in Chromium, at 800 bps only")
    arguments = parser.parse_args()
    if arguments.graphs:
        check_graphs(arguments.graphs)
    torch.set_num_threads(1)
    codecs = {name: DTMCodec.from_pretrained(arguments.model, backend=name) for name in ("torch", *OTHERS)}
    for codec in codecs.values():
        codec.backend.use_threads(1)
        codec.decode(codec.encode(np.zeros(16_000, np.float32), 16_000))  # loads all graphs
    in_torch = codecs["torch"]
    page = systems.build(f"page:{arguments.model}?bitrate=800") if arguments.page else None
    results = {name: Compared() for name in (*codecs, *(["page"] if page else []))}
    rate = in_torch.config.sample_rate
    utterances = chosen(arguments.data, arguments.limit)
    for utterance in utterances:
        audio, _ = utterance.read(rate)
        for bitrate in (None, 800):
            reference = in_torch.encode(audio, rate, bitrate=bitrate)
            speech = in_torch.decode(reference)
            for name, codec in codecs.items():
                began = time.process_time()
                encoded = codec.encode(audio, rate, bitrate=bitrate)
                middle = time.process_time()
                decoded = codec.decode(reference)
                ended = time.process_time()
                results[name].add(reference, encoded, speech, decoded, (middle - began, ended - middle))
        if page is not None:
            began = page.clock()
            coded = page.encode(audio)
            middle = page.clock()
            decoded = page.decode(Coded(in_torch.to_bytes(reference), audio.size, None, None))
            times = middle - began, page.clock() - middle
            results["page"].add(reference, in_torch.from_bytes(coded.payload), speech, decoded, times)
    print(f"{arguments.model}: {len(utterances)} utterances, {results['torch'].seconds / 2:.0f} s, one thread\n")
    columns = ("steps kept by one only", "other tokens", "of", "same masks", "audio, at most", "beyond 1e-3")
    columns += ("encode RTF", "decode RTF")
    print(f"| backend | {' | '.join(columns)} |")
    print(f"|---|{'--:|' * len(columns)}")
    for name, result in results.items():
        print(f"| {name} | {' | '.join(result.cells())} |")


if __name__ == "__main__":
    main()
