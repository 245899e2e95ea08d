"""From a checkpoint to what others can use: an inference model, and the whole training state without pickle."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor

from ..backends import check_device
from ..bitstream.token_coder import TokenModel
from ..codec import DTMCodec
from ..config import CodecConfig
from ..errors import ModelError
from ..models import hub
from ..models.hub import DISCRIMINATORS_FILE
from ..models.weights import TAU, shapes
from ..speech.utterance import Utterance
from ..system.files import write_atomically
from ..validation import require
from . import checkpoints
from .data import find_utterances, unless_broken

LONGEST_PIECE_S = 30.0
"""Of one recording, where time is short."""


def export(
    checkpoint: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    name: str | None = None,
    data: str | PathLike[str] | None = None,
    minutes: float = 60.0,
    device: str = "cpu",
    whole_window: bool = False,
    blend: tuple[str, float] | None = None,
    discriminators: bool = False,
    full: bool = False,
    dtype: torch.dtype = torch.float32,
    on_progress: Callable[[float], None] = lambda done: None,
) -> str:
    """Write the averaged weights of a checkpoint (or of a run's last one) as a model folder; returns the model id.

    name: what the model is to be called, in its files too; without it the name it was trained under.
    data: speech whose first `minutes` give the token statistics of compact files; without it there are none.
    device: where that speech is encoded.
    whole_window: without the limits of look-ahead, for a run that trained with and without (`lookahead_share`).
    blend: another model and its share: the weights are an average of both. It should be what the run began with, or
        another run from there; the codebook stays the run's.
    discriminators: also write those of the run, so that fine-tuning goes on with them.
    full: also write training.safetensors, from which a run can be resumed or fine-tuned, discriminators included.
    on_progress: is told how much of the speech is done, 0 ... 1.
    """
    check_device(device)
    path = checkpoints.find(checkpoint)
    state = checkpoints.load(path)
    config = CodecConfig.from_dict(state["config"]["model"])
    jitter = state["config"].get("controller", {}).get("jitter", 0.0)
    config = replace(config.unlimited if whole_window else config, name=name or config.name)
    codec = averaged_codec(config, _blended(config, state["average"], blend), jitter)
    if data is not None:

        def tell(seconds: float) -> None:
            on_progress(min(1.0, seconds / (60 * minutes)))

        codec.token_model = token_statistics(codec.to(device), find_utterances(data), minutes, on_progress=tell)
    model_id = codec.save_pretrained(folder, dtype)
    if discriminators:
        tensors = {name: tensor.to(dtype).contiguous() for name, tensor in state["discriminators"].items()}
        write_atomically(Path(folder) / DISCRIMINATORS_FILE, safetensors.torch.save(tensors))
    if full:
        checkpoints.write_safetensors(Path(folder) / checkpoints.PUBLISHED, state)
    return model_id


def _blended(config: CodecConfig, weights: dict[str, Tensor], blend: tuple[str, float] | None) -> dict[str, Tensor]:
    if blend is None:
        return weights
    model, share = blend
    require(0 < share < 1, "blend", share, "a share between 0 and 1")
    other = hub.load(model)
    if other.tensors is None or shapes(other.config) != shapes(config):
        raise ModelError(f"blend: {model!r} is built in another way; allowed: a trained model of the same layers")
    # a code that has moved is in neither place on average, and tau belongs to what was steered
    kept = {name for name in weights if name not in other.tensors or name == TAU or "codebook" in name}
    return {
        name: tensor if name in kept else torch.lerp(tensor, torch.from_numpy(other.tensors[name]).to(tensor), share)
        for name, tensor in weights.items()
    }


def _bitrates(codec: DTMCodec, jitter: float) -> tuple[float, float]:
    """Total bits a second between which the jitter of tau has led training: tokens are as many as tau is small."""
    ratios = (codec.config.keep_ratio * math.exp(-jitter), min(1.0, codec.config.keep_ratio * math.exp(jitter)))
    low, high = (codec.layout.bitrate(ratio * codec.config.frame_rate) for ratio in ratios)
    return round(low), round(high)


def averaged_codec(config: CodecConfig, weights: dict[str, Tensor], jitter: float) -> DTMCodec:
    """The codec that a run is about. jitter: of tau, in training; it tells at which bitrates the codec is good"""
    codec = DTMCodec(config)
    codec.network.load_state_dict(weights)
    codec.trained_bitrates = _bitrates(codec, jitter)
    return codec


def token_statistics(
    codec: DTMCodec,
    utterances: Sequence[Utterance],
    minutes: float,
    *,
    within: float = math.inf,
    on_progress: Callable[[float], None] = lambda seconds: None,
) -> TokenModel:
    """How often codes follow each other in at most `minutes` of speech, spread over the whole set.

    within: seconds after which no more speech is encoded. on_progress: is told how many seconds of speech are done.
    """
    stop_at = time.monotonic() + within
    order = np.random.default_rng(0).permutation(len(utterances))

    def sequences() -> Iterator[npt.NDArray[np.int64]]:
        done, rate = 0.0, codec.config.sample_rate
        for utterance in (utterances[i] for i in order):
            length = min(60 * minutes - done, math.inf if math.isinf(within) else LONGEST_PIECE_S)
            read = unless_broken(partial(utterance.read, rate, length=math.ceil(length * rate)))
            if read is not None:
                yield codec.encode(*read).codes
                done += read[0].size / rate
                on_progress(done)
            if done >= 60 * minutes or time.monotonic() >= stop_at:
                return

    vectors = codec.backend.vectors()
    return TokenModel.fit(sequences(), codec.config.quantizer.codebook_size, vectors)
