"""Small models with random weights that look ahead a little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from dtm_codec import DTMCodec, preset
from dtm_codec.live.encoder import StreamEncoder
from dtm_codec.live.packets import Packet, StreamFormat

TINY = {
    "dim": 32,
    "heads": 2,
    "mlp_hidden": 48,
    "enc1_layers": 2,
    "enc2_layers": 2,
    "dec1_layers": 2,
    "dec2_layers": 2,
    "window": 16,
    "enc1_lookahead": 2,
    "enc2_lookahead": 1,
    "dec1_lookahead": 3,
    "dec2_lookahead": 4,
}


def tiny(name: str = "s-vfr-50", **changes: object) -> DTMCodec:
    torch.manual_seed(0)
    return DTMCodec(replace(preset(name), **(TINY | changes)))


def usual_tau(codec: DTMCodec, speech: np.ndarray) -> float:
    """One that keeps about half of the steps."""
    hop = codec.config.hop_length
    return codec.network.calibrated_tau(torch.from_numpy(speech[None, : speech.size // hop * hop]))


def encode_in(pieces: list[np.ndarray], encoder: StreamEncoder) -> list[bytes]:
    return [packet for piece in pieces for packet in encoder.push(piece)] + encoder.flush()


def parsed(encoder: StreamEncoder, packets: list[bytes]) -> list[Packet]:
    form = StreamFormat.from_start(encoder.start)
    return [form.read(packet) for packet in packets]


def joined(packets: list[Packet]) -> tuple[np.ndarray, np.ndarray]:
    """Mask and codes of a whole stream."""
    return np.concatenate([p.mask for p in packets]), np.concatenate([p.codes for p in packets])
