"""How far apart frames are, row by row, so that pieces and whole utterances agree to the bit."""

from __future__ import annotations

import numpy as np

from .base import Array


def unit(features: Array) -> Array:
    """Rows scaled to length one; zero rows stay zero. features: (..., N, D)."""
    return np.asarray(features / np.maximum(_lengths(features), 1e-12)[..., None])


def _lengths(rows: Array) -> Array:
    """(..., D) -> (...)"""
    return np.asarray(np.sqrt(np.einsum("...d,...d->...", rows, rows)))


def l2(features: Array, lag: int = 1) -> Array:
    """Distance of every frame to the one `lag` before it, 0 where there is none. (..., N, D) -> (..., N)."""
    distances = np.zeros(features.shape[:-1], features.dtype)
    distances[..., lag:] = _lengths(features[..., lag:, :] - features[..., :-lag, :])
    return distances


def cosine(features: Array) -> Array:
    """1 - cosine similarity of every frame and the one before it, 0 for the first. (..., N, D) -> (..., N).

    Half the squared distance of the unit vectors: never negative, and exact where neighbours are nearly equal,
    where 1 - dot product leaves rounding noise. Two zero vectors, as in digital silence, have distance 0.
    """
    return np.asarray(np.square(l2(unit(features))) / 2)


def lagged_squares(features: Array, lags: int) -> Array:
    """Squared distances to the `lags` frames before. (..., N, D) -> (..., N, lags), column j - 1 for lag j."""
    columns = [np.square(l2(features, lag)) for lag in range(1, lags + 1)]
    return np.stack(columns, axis=-1) if columns else features[..., :0]
