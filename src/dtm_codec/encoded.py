"""One encoded utterance: what `encode` returns, a file holds and `decode` takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .bitstream import container
from .bitstream.claims import ClaimLimit
from .bitstream.container import Content, File, Mode
from .bitstream.header import MAX_STEPS
from .bitstream.token_coder import TokenModel
from .errors import BitstreamError
from .layout import Bits, Layout

__all__ = ["Encoded", "Mode"]


@dataclass(frozen=True, eq=False)
class Encoded:
    """Codes and keep mask of one utterance."""

    codes: npt.NDArray[np.int64]
    """(K,) one code per kept step."""
    mask: npt.NDArray[np.bool_]
    """(N,) True = kept; the first step always is."""
    num_samples: int
    """Length of the audio at the model's sample rate."""
    model_id: str
    """Name and fingerprint of the model that made it, as in 's-vfr-50:1f3a5c7e'."""
    layout: Layout

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", _whole_numbers(self.codes, "codes"))
        object.__setattr__(self, "mask", np.ascontiguousarray(self.mask, dtype=np.bool_))
        if not isinstance(self.num_samples, int | np.integer) or self.num_samples < 1:
            raise BitstreamError(f"num_samples = {self.num_samples!r}; allowed: a whole number >= 1")
        object.__setattr__(self, "num_samples", int(self.num_samples))
        if self.mask.shape != (self.layout.steps(self.num_samples),):
            raise BitstreamError(
                f"a mask of shape {self.mask.shape} for {self.num_samples} samples; "
                f"allowed: ({self.layout.steps(self.num_samples)},)"
            )
        if not self.mask[0]:
            raise BitstreamError("the first step is masked; it must be kept")
        if self.codes.shape != (int(self.mask.sum()),):
            raise BitstreamError(f"{self.codes.shape} codes for {int(self.mask.sum())} kept steps")
        if self.codes.min() < 0 or self.codes.max() >= 1 << self.layout.token_bits:
            raise BitstreamError(
                f"codes {self.codes.min()} ... {self.codes.max()}; allowed: 0 ... {(1 << self.layout.token_bits) - 1}"
            )
        if self.layout.stride is not None and not np.array_equal(self.mask, self.layout.fixed_mask(self.mask.size)):
            raise BitstreamError(f"the mask is not every {self.layout.stride}-th step, as the fixed-rate layout says")

    @classmethod
    def from_durations(
        cls,
        tokens: npt.ArrayLike,
        durations: npt.ArrayLike,
        model_id: str,
        layout: Layout,
        num_samples: int | None = None,
    ) -> Encoded:
        """An utterance from what language models handle: tokens and the steps that each lasts, (K,) each.

        num_samples: if the last step is not full; else the length is that of all steps.
        """
        spans = _whole_numbers(durations, "durations")
        if spans.ndim != 1 or spans.size == 0:
            raise BitstreamError(f"durations of shape {spans.shape}; allowed: (K,), of 1 token or more")
        for steps in (int(spans.min()), int(spans.max())):  # first: the sum of larger ones might be beyond 64 bits
            if not 1 <= steps <= MAX_STEPS:
                raise BitstreamError(f"a duration of {steps} steps; allowed: 1 ... {MAX_STEPS}")
        total = int(spans.sum())
        if total > MAX_STEPS:
            raise BitstreamError(f"durations of {total} steps in all; allowed: up to {MAX_STEPS}")
        mask = np.zeros(total, np.bool_)
        mask[np.cumsum(spans) - spans] = True
        samples = mask.size * layout.hop_length if num_samples is None else num_samples
        return cls(_whole_numbers(tokens, "tokens"), mask, samples, model_id, layout)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Encoded)
            and (self.num_samples, self.model_id, self.layout) == (other.num_samples, other.model_id, other.layout)
            and np.array_equal(self.mask, other.mask)
            and np.array_equal(self.codes, other.codes)
        )

    def __repr__(self) -> str:
        tokens, seconds = self.codes.size, self.duration_s
        rates = f"{tokens / seconds:.1f} a second, {self.bits.total / seconds:.0f} bps"
        return f"Encoded({tokens} tokens in {seconds:.2f} s, {rates}, {self.model_id})"

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """(K,) the codes, under the name that language models use."""
        return self.codes

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """(K,) step index of each token."""
        return np.flatnonzero(self.mask)

    @property
    def durations(self) -> npt.NDArray[np.int64]:
        """(K,) steps from each token to the next, the last one to the end; they sum to N."""
        return np.diff(self.positions, append=self.mask.size)

    @property
    def times(self) -> npt.NDArray[np.float64]:
        """(K, 2) start and end of each token in seconds; the last one ends with the audio."""
        starts = self.positions * self.layout.hop_length
        return np.stack([starts, np.append(starts[1:], self.num_samples)], axis=1) / self.layout.sample_rate

    @property
    def duration_s(self) -> float:
        return self.num_samples / self.layout.sample_rate

    @property
    def bits(self) -> Bits:
        """Content and position bits as the paper counts them (Eq. 5)."""
        return self.layout.bits(self.codes.size, self.mask.size)

    def to_file(self, mode: Mode = "compact", token_model: TokenModel | None = None) -> File:
        """The `.dtm` file of this utterance: its bytes, and what they cost.

        Anyone can read it without the model, unless `token_model` is given in compact mode: that makes it smaller,
        and it is then needed to read the file. `DTMCodec.to_bytes` gives its own.
        """
        content = Content(self.codes, self.mask, self.num_samples, self.model_id, self.layout)
        return container.write(content, mode, token_model)

    def to_bytes(self, mode: Mode = "compact", token_model: TokenModel | None = None) -> bytes:
        """The bytes of `to_file`."""
        return self.to_file(mode, token_model).data

    @classmethod
    def from_bytes(cls, data: bytes, token_model: TokenModel | None = None, limit: ClaimLimit | None = None) -> Encoded:
        """Read a `.dtm` file; anything else raises `BitstreamError`. limit: on the length that it may claim"""
        return cls(*container.read(data, token_model, limit))


def _whole_numbers(values: npt.ArrayLike, name: str) -> npt.NDArray[np.int64]:
    """Integers of any kind as int64; other numbers are refused rather than rounded."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise BitstreamError(f"{name} of type {array.dtype}; allowed: whole numbers")
    return np.ascontiguousarray(array, dtype=np.int64)
