"""Predicted mean opinion scores, 1 ... 5, heard without the reference."""

from __future__ import annotations

import contextlib
import io
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import ModelError
from ..specs import Spec
from ..speech.audio import Samples
from ..system.files import fingerprint
from ..system.optional import import_optional, package_version
from .base import SAMPLE_RATE, Last, Metric, Sample, Score, local_model


class UTMOS(Metric):
    """UTMOS strong learner (Saeki 2022), the paper's: the SpeechMOS repository through torch.hub, or a clone of it."""

    label = "UTMOS"
    options = ("model",)
    repository = "tarepan/SpeechMOS:v1.2.0"

    @property
    def judge(self) -> str:
        clone = f"clone {fingerprint(Path(self._folder))}" if self._folder else self.repository.rpartition(":v")[2]
        return f"UTMOS22 strong (SpeechMOS {clone})"

    @property
    def _folder(self) -> str:
        return self.spec.options.get("model") or str(local_model("SpeechMOS") or "")

    def load(self) -> None:
        _utmos(self._folder)

    def measure(self, sample: Sample) -> Score:
        import torch

        with torch.inference_mode():
            return Score(float(_utmos(self._folder)(torch.from_numpy(sample.decoded)[None], SAMPLE_RATE)))


@cache
def _utmos(folder: str) -> Any:
    import torch

    import_optional("torchaudio")
    load: Any = torch.hub.load
    try:
        if folder:
            return load(folder, "utmos22_strong", source="local")
        return load(UTMOS.repository, "utmos22_strong", trust_repo=True)
    except Exception as error:  # whatever the network answers, the user gets one line
        where = folder or UTMOS.repository
        raise ModelError(f"utmos: cannot load {where!r} through torch.hub ({type(error).__name__}: {error})") from None


class UTMOSv2(Metric):
    """UTMOSv2 (Baba 2024), the paper's; the package fetches its weights."""

    label = "UTMOSv2"

    @property
    def judge(self) -> str:
        return f"UTMOSv2 fusion_stage3 ({package_version('utmosv2')})"

    def load(self) -> None:
        _utmosv2()

    def measure(self, sample: Sample) -> Score:
        predicted = _utmosv2().predict(data=sample.decoded, sr=SAMPLE_RATE, num_repetitions=1, verbose=False)
        return Score(float(np.asarray(predicted).reshape(-1)[0]))


@cache
def _utmosv2() -> Any:
    package = import_optional("utmosv2")
    try:
        return package.create_model(pretrained=True)
    except Exception as error:  # the package downloads its weights
        raise ModelError(f"utmosv2: cannot load its weights ({type(error).__name__}: {error})") from None


class DistillMOS(Metric):
    """DistillMOS (Stahl & Gamper 2025): a small student of XLS-R-based predictors; the package carries its weights."""

    label = "DistillMOS"

    @property
    def judge(self) -> str:
        return f"DistillMOS v7 ({package_version('distillmos')})"

    def load(self) -> None:
        _distillmos()

    def measure(self, sample: Sample) -> Score:
        import torch

        with torch.inference_mode():
            return Score(float(_distillmos()(torch.from_numpy(sample.decoded)[None])))


@cache
def _distillmos() -> Any:
    with _without_torchaudio(), contextlib.redirect_stdout(io.StringIO()):  # it prints where its weights are
        return import_optional("distillmos").ConvTransformerSQAModel().eval()


@contextlib.contextmanager
def _without_torchaudio() -> Any:
    """Let `distillmos` be imported without torchaudio, which it uses only to read files."""
    try:
        import torchaudio  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        sys.modules["torchaudio"] = ModuleType("torchaudio")
        try:
            yield
        finally:
            del sys.modules["torchaudio"]
    else:
        yield


class DNSMOS(Metric):
    """DNSMOS (Reddy 2022): P.835 overall (`dnsmos:ovrl`), `sig`, `bak`, or `p808`; the package carries its models."""

    label = "DNSMOS"
    kinds = ("ovrl", "sig", "bak", "p808")

    def __init__(self, spec: Spec) -> None:
        super().__init__(Spec(spec.kind, spec.choice(self.kinds, "ovrl"), spec.options))

    @property
    def judge(self) -> str:
        return f"DNSMOS {str(self.spec.argument).upper()} ({package_version('speechmos')})"

    def load(self) -> None:
        _dnsmos()

    def measure(self, sample: Sample) -> Score:
        return Score(_dnsmos()(sample.decoded)[f"{self.spec.argument}_mos"])


@cache
def _dnsmos() -> Last[dict[str, float]]:
    """All four opinions of an array; the last array's are kept for the next metric."""
    package = import_optional("speechmos.dnsmos")
    models = Path(str(package.__file__)).parent / "dnsmos_models"
    judge = package.DNSMOS(str(models / "sig_bak_ovr.onnx"), str(models / "model_v8.onnx"))

    def opinions(audio: Samples) -> dict[str, float]:
        return {key: float(value) for key, value in judge(np.clip(audio, -1, 1), SAMPLE_RATE, False).items()}

    return Last(opinions)
