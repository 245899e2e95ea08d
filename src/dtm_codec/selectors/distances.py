"""How far apart frames are, row by row, so that pieces and whole utterances agree to the bit."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad


def unit(features: Tensor) -> Tensor:
    """Rows scaled to length one; zero rows stay zero. features: (..., N, D)."""
    return normalize(features, dim=-1)


def l2(features: Tensor, lag: int = 1) -> Tensor:
    """Distance of every frame to the one `lag` before it, 0 where there is none. (..., N, D) -> (..., N)."""
    lag = min(lag, features.shape[-2])
    pairs = features.shape[-2] - lag
    difference = features.narrow(-2, lag, pairs) - features.narrow(-2, 0, pairs)
    return pad(torch.linalg.vector_norm(difference, dim=-1), (lag, 0))


def cosine(features: Tensor) -> Tensor:
    """1 - cosine similarity of every frame and the one before it, 0 for the first. (..., N, D) -> (..., N).

    Half the squared distance of the unit vectors: never negative, and exact where neighbours are nearly equal,
    where 1 - dot product leaves rounding noise. Two zero vectors, as in digital silence, have distance 0.
    """
    return l2(unit(features)).square() / 2


def lagged_squares(features: Tensor, lags: int) -> Tensor:
    """Squared distances to the `lags` frames before. (..., N, D) -> (..., N, lags), column j - 1 for lag j."""
    columns = [l2(features, lag).square() for lag in range(1, lags + 1)]
    return torch.stack(columns, dim=-1) if columns else features[..., :0]
