"""ViSQOL v3 (Chinen 2020) in speech mode: how similar a listener would find the two, 1 ... 5."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import numpy as np

from ..errors import AudioError
from ..specs import Spec
from ..system.optional import import_optional, package_version
from .base import SAMPLE_RATE, Metric, Sample, Score


class ViSQOL(Metric):
    """`visqol:lattice` maps similarity to opinion as Google's program does; `visqol:polynomial` is its older mapping.

    The two differ by more than a point, so each is a judge of its own.
    """

    label = "ViSQOL"
    mappings = ("lattice", "polynomial")

    def __init__(self, spec: Spec) -> None:
        super().__init__(Spec(spec.kind, spec.choice(self.mappings, "lattice"), spec.options))

    @property
    def judge(self) -> str:
        runtime = f", {package_version('ai_edge_litert')}" if self.spec.argument == "lattice" else ""
        return f"ViSQOL speech mode, {self.spec.argument} ({package_version('visqol')}{runtime})"

    def load(self) -> None:
        _visqol(str(self.spec.argument))

    def measure(self, sample: Sample) -> Score:
        reference, decoded = (audio.astype(np.float64) for audio in (sample.reference, sample.decoded))
        try:
            value = float(_visqol(str(self.spec.argument)).measure_from_arrays(reference, decoded, SAMPLE_RATE).moslqo)
        except (IndexError, ValueError):  # it finds no patch of speech to compare
            value = float("nan")
        if not np.isfinite(value):
            raise AudioError("ViSQOL has no value: too short, or silent")
        return Score(value)


@cache
def _visqol(mapping: str) -> Any:
    if mapping == "lattice":
        import_optional("ai_edge_litert")
    logging.getLogger("visqol").setLevel(logging.ERROR)  # else a line for every utterance
    judge = import_optional("visqol").VisqolApi()
    judge.create(mode="speech", use_lattice_model=mapping == "lattice")
    return judge
