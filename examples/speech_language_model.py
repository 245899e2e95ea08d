"""For a researcher of speech language models: a corpus to tokens and durations, to tensors, and back to speech.

    pip install '.[torch,corpus]'
    python examples/speech_language_model.py [CORPUS] [-o tokens]

Writes Parquet shards, makes one sequence of symbols of every utterance as a language model would read it, pads the
sequences to a batch, and turns the batch back into audio. What comes back is exactly what went in, so whatever a
model generates in this vocabulary can be heard the same way.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.dataset
import torch

from dtm_codec import DTMCodec, Encoded
from dtm_codec.corpus import Scheme, flatten, tokenize, unflatten
from dtm_codec.speech.audio import sample_path, write_audio

PADDING = -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, default=sample_path().parent)
    parser.add_argument("-o", "--output", type=Path, default=Path("tokens"))
    options = parser.parse_args()
    tokenize(options.corpus, options.output, bitrate=800, workers=1)
    rows = pyarrow.dataset.dataset(options.output / "data").to_table().to_pylist()

    codec = DTMCodec.from_pretrained()
    scheme = Scheme("joint", codec.config.quantizer.codebook_size, max_duration=4)
    sequences = [torch.as_tensor(flatten(row["tokens"], row["durations"], scheme)) for row in rows]
    batch = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=PADDING)
    torch.save({"ids": [row["id"] for row in rows], "symbols": batch}, options.output / "batch.pt")
    print(f"{len(rows)} utterances, batch {tuple(batch.shape)}, vocabulary {scheme.vocabulary_sizes[0]}")

    for row, symbols in zip(rows, batch, strict=True):
        tokens, durations = unflatten(symbols[symbols != PADDING].numpy(), scheme)
        assert (tokens.tolist(), durations.tolist()) == (row["tokens"], row["durations"])
        audio = codec.decode(Encoded.from_durations(tokens, durations, codec.model_id, codec.layout))
        path = options.output / "audio" / Path(row["id"]).with_suffix(".wav").name
        path.parent.mkdir(exist_ok=True)
        write_audio(path, audio, codec.config.sample_rate)
        print(f"{row['id']}: {tokens.size} tokens, {durations.sum()} steps -> {path}")


if __name__ == "__main__":
    main()
