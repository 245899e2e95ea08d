"""What the encoder knows before it quantizes (z1 and z2 of Eq. 1), for probes and other networks."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from . import piecewise
from .encoded import Encoded
from .network import Network
from .piecewise import Stage1
from .speech.audio import Samples


class Features(NamedTuple):
    """Vectors of one utterance. z1[encoded.mask] are those that Stage 2 was given, `encoded.times` when they stand."""

    z1: Tensor
    """(N, D) Stage 1, every step."""
    z2: Tensor
    """(K, D) Stage 2, kept steps, before the quantizer."""
    encoded: Encoded
    """Mask and codes that go with them."""


@torch.no_grad()  # not inference_mode: probes are trained on what comes out
def features_of(network: Network, signal: Samples, encoded: Encoded) -> Features:
    """signal: (T,) at the model's rate, which became `encoded`"""
    stage1 = Stage1(network, [partial(iter, [signal])], encoded.mask.size)
    z1 = torch.cat([rows.values for rows in stage1.compute()])
    mask = torch.from_numpy(encoded.mask).to(z1.device)
    z2 = torch.cat(list(piecewise.stage2(network, [z1], mask, (len(z1),))))
    return Features(z1, z2, encoded)
