"""What a model's codes and selector do: codebook utilisation, NMSE, real-time factor and the selector's share of it.

The columns that Tables 5 and 6 of the paper have beside the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..metrics.base import SAMPLE_RATE
from ..selectors import nmse
from ..speech.utterance import Utterance
from .systems.base import cpu_seconds
from .systems.ours import DTM, use_selector

MOST = 50
"""Utterances that a selector is timed on, spread over the set."""


@dataclass(frozen=True)
class CodeUse:
    tokens: int
    used: int
    """Codes that occur."""
    size: int
    """Codes there are."""

    @property
    def utilisation(self) -> float:
        """Share of all codes that occur; a set of few tokens cannot have a large one."""
        return self.used / self.size


def count_codes(system: DTM, utterances: Sequence[Utterance]) -> CodeUse:
    used: set[int] = set()
    tokens = 0
    for utterance in utterances:
        codes = system.encode(utterance.read(SAMPLE_RATE)[0]).payload.codes
        used.update(codes.tolist())
        tokens += codes.size
    return CodeUse(tokens, len(used), system.codec.config.quantizer.codebook_size)


@dataclass(frozen=True)
class SelectorUse:
    nmse: float
    """Squared error of segment means over the energy of z1, total over total (paper Section 4.4)."""
    rtf: float
    """CPU seconds of encode and decode per second of speech, one thread."""
    share: float
    """Per cent of that time spent in choosing the frames."""


def time_selector(system: DTM, utterances: Sequence[Utterance]) -> SelectorUse:
    """Encode and decode some utterances of the set on one thread."""
    chosen = [utterances[i] for i in np.unique(np.linspace(0, len(utterances) - 1, MOST).round().astype(int))]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _time_selector(system, chosen)
    finally:
        torch.set_num_threads(threads)


def _time_selector(system: DTM, utterances: Sequence[Utterance]) -> SelectorUse:
    codec = system.codec
    use_selector(codec, system.selector)  # a swapped one could not be timed
    clock = SelectorClock(codec.backend.selector)
    error, energy, spent, choosing, seconds = 0.0, 0.0, 0.0, 0.0, 0.0
    for number, utterance in enumerate([utterances[0], *utterances]):
        audio, _ = utterance.read(SAMPLE_RATE)
        clock.reset()
        start = cpu_seconds()
        encoded = codec.encode(audio, SAMPLE_RATE, **system.rate)
        codec.decode(encoded)
        elapsed = cpu_seconds() - start
        if number == 0:
            continue  # the first pass compiles and warms up
        spent += elapsed - clock.calibrating
        choosing += clock.choosing
        seconds += encoded.duration_s
        z1 = codec.stage1(audio, SAMPLE_RATE)
        own_energy = float(np.square(z1, dtype=np.float64).sum())
        error += nmse(z1, encoded.mask) * own_energy
        energy += own_energy
    return SelectorUse(error / energy, spent / seconds, 100 * choosing / spent)


class SelectorClock:
    """Times a selector's two steps in place. Trying several tau is calibration, the last decision is selection."""

    def __init__(self, selector: Any) -> None:
        self.reset()
        selector.statistics = self._timed(selector.statistics, "statistics")
        selector.keep = self._timed(selector.keep, "keep")

    def reset(self) -> None:
        self._seconds: dict[str, list[float]] = {"statistics": [], "keep": []}

    @property
    def choosing(self) -> float:
        """Seconds of the analysis and the last decision."""
        return sum(self._seconds["statistics"]) + sum(self._seconds["keep"][-1:])

    @property
    def calibrating(self) -> float:
        """Seconds of the decisions before the last."""
        return sum(self._seconds["keep"][:-1])

    def _timed(self, function: Callable[..., Any], step: str) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = cpu_seconds()
            result = function(*arguments)
            self._seconds[step].append(cpu_seconds() - start)
            return result

        return timed
