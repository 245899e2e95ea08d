"""Padded batches: tensors of equal lengths in and out, as PyTorch models take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .encoded import Encoded
from .errors import AudioError, ModelError
from .layout import Layout

PADDING = -1
"""In place of a code after the end: an embedding refuses it, where 0 would pass for a code."""


class AudioBatch(NamedTuple):
    audio: Tensor
    """(B, 1, T_max) float32, zeros after the end"""
    lengths: Tensor
    """(B,) int64, samples"""


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Tokens of some utterances of one model, side by side."""

    codes: Tensor
    """(B, K_max) int64, PADDING after the end"""
    durations: Tensor
    """(B, K_max) int64, steps that each token lasts, 0 after the end"""
    lengths: Tensor
    """(B,) int64, K of each utterance"""
    num_samples: Tensor
    """(B,) int64, length of the audio at the model's rate"""
    model_id: str
    layout: Layout

    @classmethod
    def from_encoded(cls, utterances: Sequence[Encoded]) -> TokenBatch:
        if not utterances:
            raise ModelError("a batch of 0 utterances; allowed: 1 or more")
        first = utterances[0]
        for other in utterances:
            if (other.model_id, other.layout) != (first.model_id, first.layout):
                raise ModelError(
                    f"utterances of model {first.model_id!r} with {first.layout} and of {other.model_id!r} with "
                    f"{other.layout} in one batch; allowed: one model and layout"
                )
        return cls(
            _padded([e.codes for e in utterances], PADDING),
            _padded([e.durations for e in utterances], 0),
            torch.tensor([e.codes.size for e in utterances]),
            torch.tensor([e.num_samples for e in utterances]),
            first.model_id,
            first.layout,
        )

    @classmethod
    def from_durations(
        cls, codes: Tensor, durations: Tensor, lengths: Tensor, model_id: str, layout: Layout
    ) -> TokenBatch:
        """What a language model has written, (B, K_max) each and (B,); what stands after the end does not matter."""
        if codes.dim() != 2 or codes.shape != durations.shape:
            raise ModelError(
                f"codes of shape {tuple(codes.shape)}, durations of {tuple(durations.shape)}; allowed: (B, K) twice"
            )
        check_lengths(lengths, codes.shape[0], codes.shape[1], "tokens")
        rows = zip(codes.cpu().numpy(), durations.cpu().numpy(), lengths.tolist(), strict=True)
        return cls.from_encoded([Encoded.from_durations(c[:k], d[:k], model_id, layout) for c, d, k in rows])

    def to_encoded(self) -> list[Encoded]:
        """Utterance by utterance, each checked."""
        rows = zip(
            self.codes.cpu().numpy(),
            self.durations.cpu().numpy(),
            self.lengths.tolist(),
            self.num_samples.tolist(),
            strict=True,
        )
        return [Encoded.from_durations(c[:k], d[:k], self.model_id, self.layout, size) for c, d, k, size in rows]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def is_token(self) -> Tensor:
        """(B, K_max) bool, False after the end: what attention calls a padding mask."""
        return torch.arange(self.codes.shape[1], device=self.lengths.device) < self.lengths[:, None]

    @property
    def steps(self) -> Tensor:
        """(B,) int64, N of each utterance"""
        return self.durations.sum(1)

    @property
    def mask(self) -> Tensor:
        """(B, N_max) bool, True = kept, as the paper's m; False after the end too, which `steps` says."""
        starts = self.durations.cumsum(1) - self.durations
        mask = torch.zeros(len(self), int(self.steps.max()), dtype=torch.bool, device=self.codes.device)
        rows = torch.arange(len(self), device=self.codes.device)[:, None].expand_as(starts)
        mask[rows[self.is_token], starts[self.is_token]] = True
        return mask

    def to(self, device: str | torch.device) -> TokenBatch:
        return self._each(lambda tensor: tensor.to(device))

    def pin_memory(self) -> TokenBatch:
        """For `DataLoader(pin_memory=True)`."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> TokenBatch:
        codes, durations, lengths = change(self.codes), change(self.durations), change(self.lengths)
        return TokenBatch(codes, durations, lengths, change(self.num_samples), self.model_id, self.layout)


def signals(audio: Tensor, lengths: Tensor | None) -> list[Tensor]:
    """The utterances of a padded batch, each as long as it is. audio: (B, T) or (B, 1, T), lengths: (B,)"""
    if audio.dim() == 3 and audio.shape[1] == 1:
        audio = audio[:, 0]
    if audio.dim() != 2 or not audio.numel():
        raise AudioError(f"a batch of shape {tuple(audio.shape)}; allowed: (B, T) or (B, 1, T), not empty")
    sizes = (
        [audio.shape[1]] * len(audio)
        if lengths is None
        else check_lengths(lengths, len(audio), audio.shape[1], "samples")
    )
    return [row[:size] for row, size in zip(audio, sizes, strict=True)]


def padded_audio(utterances: Sequence[npt.NDArray[np.float32]], device: torch.device) -> AudioBatch:
    lengths = torch.tensor([x.size for x in utterances])
    return AudioBatch(_padded(utterances, 0)[:, None].to(device), lengths.to(device))


def check_lengths(lengths: Tensor, number: int, longest: int, of: str) -> list[int]:
    allowed = f"allowed: {number} whole numbers of {of}, 1 ... {longest}"
    if lengths.shape != (number,) or lengths.is_floating_point():
        raise ModelError(f"lengths of shape {tuple(lengths.shape)} and type {lengths.dtype}; {allowed}")
    if number and (lengths.min() < 1 or lengths.max() > longest):
        raise ModelError(f"lengths of {lengths.min()} ... {lengths.max()}; {allowed}")
    whole: list[int] = lengths.tolist()
    return whole


def _padded(rows: Sequence[npt.NDArray[np.float32] | npt.NDArray[np.int64]], padding: int) -> Tensor:
    return pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True, padding_value=padding)
