"""From a checkpoint to what others can use: an inference model, and the whole training state without pickle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..bitstream.token_coder import TokenModel
from ..codec import DTMCodec
from ..config import CodecConfig
from ..hub import check_device
from ..speech.utterance import Utterance
from . import checkpoints
from .data import find_utterances, unless_broken


def export(
    checkpoint: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    name: str | None = None,
    data: str | PathLike[str] | None = None,
    minutes: float = 60.0,
    device: str = "cpu",
    full: bool = False,
    dtype: torch.dtype = torch.float32,
) -> str:
    """Write the averaged weights of a checkpoint (or of a run's last one) as a model folder; returns the model id.

    name: what the model is to be called, in its files too; without it the name it was trained under.
    data: speech whose first `minutes` give the token statistics of compact files; without it there are none.
    device: where that speech is encoded.
    full: also write training.safetensors, from which a run can be resumed or fine-tuned, discriminators included.
    """
    check_device(device)
    path = checkpoints.find(checkpoint)
    state = checkpoints.load(path)
    config = CodecConfig.from_dict(state["config"]["model"])
    codec = averaged_codec(replace(config, name=name or config.name), state["average"])
    codec.trained_bitrates = _bitrates(codec, state["config"].get("controller", {}).get("jitter", 0.0))
    if data is not None:
        codec.token_model = token_statistics(codec.to(device), find_utterances(data), minutes)
    model_id = codec.save_pretrained(folder, dtype)
    if full:
        checkpoints.write_safetensors(Path(folder) / checkpoints.PUBLISHED, state)
    return model_id


def _bitrates(codec: DTMCodec, jitter: float) -> tuple[float, float]:
    """Total bits a second between which the jitter of tau has led training: tokens are as many as tau is small."""
    ratios = (codec.config.keep_ratio * math.exp(-jitter), min(1.0, codec.config.keep_ratio * math.exp(jitter)))
    low, high = (codec.layout.bitrate(ratio * codec.config.frame_rate) for ratio in ratios)
    return round(low), round(high)


def averaged_codec(config: CodecConfig, weights: dict[str, Tensor]) -> DTMCodec:
    """A codec for inference with averaged weights."""
    codec = DTMCodec(config)
    codec.network.load_state_dict(weights)
    return codec


def token_statistics(codec: DTMCodec, utterances: Sequence[Utterance], minutes: float) -> TokenModel:
    """How often codes follow each other in at most `minutes` of speech, spread over the whole set."""
    order = np.random.default_rng(0).permutation(len(utterances))
    sequences = _code_sequences(codec, [utterances[i] for i in order], 60 * minutes)
    vectors = codec.network.quantizer.vectors().cpu().numpy()
    return TokenModel.fit(sequences, codec.config.quantizer.codebook_size, vectors)


def _code_sequences(
    codec: DTMCodec, utterances: Sequence[Utterance], seconds: float
) -> Iterator[npt.NDArray[np.int64]]:
    for utterance in utterances:
        if seconds <= 0:
            return
        if read := unless_broken(utterance.read):
            seconds -= read[0].size / read[1]
            yield codec.encode(*read).codes
