"""What `DTMCodec` needs of a network: the parts of Eq. 1 on a few thousand rows at a time, in NumPy arrays.

`pytorch.py` has it over PyTorch, `onnx/backend.py` over onnxruntime. The parts of both have the same names.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..config import CodecConfig, Stack
from ..models.weights import Array
from ..selectors import Selector

Floats: TypeAlias = npt.NDArray[np.float32]
"""(S, D) or whatever width the rows have."""
Positions: TypeAlias = npt.NDArray[np.int64]
"""(S,) each row's place in the time of its own utterance; 0 begins a new one."""
Mask: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.int64]

PIECE = 8192
"""Steps computed at a time when utterances are coded: 82 s of Stage 1 at 100 Hz. A multiple of the window is best:
attention then works on the same blocks as without pieces."""


class Pulses(NamedTuple):
    """A pulse train at the centres of frames."""

    hertz: npt.NDArray[np.float64]
    """(S,)"""
    phase: npt.NDArray[np.float64]
    """(S,) radians"""


class Backend(Protocol):
    name: str
    """As `from_pretrained` takes it."""

    piece: int
    """Steps computed at a time."""

    @property
    def selector(self) -> Selector:
        """The model's own."""

    @property
    def whole_segments(self) -> bool:
        """`downsample` needs all steps of a segment at once."""

    @property
    def config(self) -> CodecConfig: ...

    @property
    def tau(self) -> float:
        """What training has steered the selector to; NaN if it has not."""

    def use_selector(self, config: CodecConfig, selector: Selector) -> None:
        """Another selector as the model's own; its tau is then unknown."""

    def front_end(self, frames: Floats) -> Floats:
        """(S, n_fft) -> (S, D)"""

    def log_mel(self, frames: Floats) -> Floats:
        """(S, n_fft) -> (S, bands)"""

    def stack(self, name: Stack, x: Floats, positions: Positions) -> Floats:
        """(S, D) -> (S, D)"""

    def downsample(self, z1: Floats, mask: Mask) -> Floats:
        """(N, D), (N,) -> (K, D)"""

    def quantize(self, z2: Floats) -> Codes:
        """(K, D) -> (K,)"""

    def dequantize(self, codes: Codes) -> Floats:
        """(K,) -> (K, D)"""

    def upsample(self, h: Floats, mask: Mask) -> Floats:
        """(K, D), (N,) of which the first is kept -> (N, D)"""

    def pitch(self, y: Floats) -> npt.NDArray[np.float64] | None:
        """Hertz, (S, D) -> (S,); None of a head that has no pitch."""

    def head(self, y: Floats, positions: Positions, pulses: Pulses | None) -> Floats:
        """Windowed frames, to be overlap-added. (S, D) -> (S, n_fft)"""

    def vectors(self) -> Floats:
        """What each code stands for before it is projected. -> (V, d)"""

    def weights(self) -> dict[str, Array]:
        """All tensors, as `weights.shapes` names them."""

    def version(self) -> Any:
        """Differs after a weight has changed."""

    def to(self, device: str) -> None: ...

    def use_threads(self, threads: int) -> None: ...
