"""What a metric is: one judge, one number per utterance."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from ..errors import ModelError
from ..specs import Spec
from ..speech.audio import Samples

Value = TypeVar("Value")

SAMPLE_RATE = 16_000
"""Hz, of every signal that is judged: a system or metric that works at another rate resamples."""

MODELS_VARIABLE = "DTM_METRIC_MODELS"
"""Environment variable: a folder with the models of metrics, each under its known name."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One decoded utterance as a judge gets it; 16 kHz."""

    decoded: Samples
    """(T,)"""
    reference: Samples
    """(T,) what was encoded, aligned with `decoded`"""
    text: str | None = None
    """What is said, if known."""
    language: str | None = None
    """ISO 639-1 code, if known."""


@dataclass(frozen=True)
class Score:
    """One utterance's value. A set's value is the weighted mean: words for WER, equal weights for most."""

    value: float
    weight: float = 1.0
    note: str | None = None
    """What the judge heard, for WER: the transcript."""


class Metric(ABC):
    """One judge. Building one is cheap; its model is loaded with the first utterance."""

    label: str
    """Heading of its column, as the paper writes it where the paper has it."""
    unit: ClassVar[str] = ""
    higher_is_better: ClassVar[bool] = True
    decimals: ClassVar[int] = 2
    needs_text: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ()
    """What may stand after '?' in its name."""
    languages: frozenset[str] | None = None
    """Languages the judge knows; None is any."""

    def __init__(self, spec: Spec) -> None:
        spec.allow_options(self.options)
        self.spec = spec

    @property
    def name(self) -> str:
        """Key in results: the specification without options."""
        return self.spec.name

    @property
    @abstractmethod
    def judge(self) -> str:
        """Package, model and version: two results are comparable only if their judges are equal."""

    def load(self) -> None:  # noqa: B027 - a formula has nothing to load
        """Import and load what scoring needs; an error here says what to install or where to put a model."""

    @abstractmethod
    def measure(self, sample: Sample) -> Score:
        """Judge one utterance that has the text and language that this judge needs."""

    def score(self, sample: Sample) -> Score | None:
        """Judge one utterance, or None if it lacks the text or language that this judge needs."""
        if self.needs_text and not sample.text:
            return None
        if self.languages is not None and (sample.language or "en") not in self.languages:
            return None
        return self.measure(sample)


class Last(Generic[Value]):
    """A function's last value: a reference is embedded once for all systems, WER and CER share a transcript."""

    def __init__(self, compute: Callable[..., Value]) -> None:
        self._compute = compute
        self._entry: tuple[object, tuple[str | bytes, ...], Value] | None = None

    def __call__(self, subject: object, *rest: str | bytes) -> Value:
        """The value of `subject`, an array as a rule, computed unless it is the very one of the last call."""
        if self._entry is None or self._entry[0] is not subject or self._entry[1] != rest:
            self._entry = (subject, rest, self._compute(subject, *rest))
        return self._entry[2]


def local_model(name: str) -> Path | None:
    """The file or folder of that name in the folder that DTM_METRIC_MODELS points to, if it is there."""
    root = os.environ.get(MODELS_VARIABLE)
    path = Path(root).expanduser() / name if root else None
    return path if path is not None and path.exists() else None


def find_model(spec: Spec, name: str) -> Path:
    """A model on disk: the option `model`, or the known name under DTM_METRIC_MODELS."""
    given = spec.options.get("model")
    path = Path(given).expanduser() if given else local_model(name)
    if path is None or not path.exists():
        where = f"{given!r} is not there" if given else f"no {name!r} in the folder of ${MODELS_VARIABLE}"
        raise ModelError(
            f"{spec.name}: {where}; give {spec.name}?model=PATH, or a folder with {name!r} by {MODELS_VARIABLE}"
        )
    return path


def hub_or_local(spec: Spec, name: str, hub_id: str) -> str:
    """A model that transformers loads: the option `model` (folder or hub id), the known name, or the hub id."""
    return spec.options.get("model") or str(local_model(name) or hub_id)
