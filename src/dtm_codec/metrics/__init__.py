"""The judges, by name. Importing this loads none of them; building one imports its file, scoring its package.

A name is `metric[:judge][?model=PATH_OR_HUB_ID]`: `pesq`, `wer:moonshine`, `spk-sim:onnx?model=speaker.onnx`. Without
a judge stands the paper's. Models are also found by their known names in the folder that the environment variable
DTM_METRIC_MODELS points to.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from ..errors import ConfigError
from ..specs import Spec
from .base import MODELS_VARIABLE, Metric, Sample, Score, local_model

__all__ = ["MODELS_VARIABLE", "Metric", "Sample", "Score", "available", "build", "build_all", "known", "standard"]

_METRICS = {
    "pesq": "signal:PESQ",
    "stoi": "signal:STOI",
    "estoi": "signal:ESTOI",
    "si-sdr": "signal:SISDR",
    "mel": "spectral:MelDistance",
    "stft": "spectral:STFTDistance",
    "utmos": "mos:UTMOS",
    "utmosv2": "mos:UTMOSv2",
    "distillmos": "mos:DistillMOS",
    "dnsmos": "mos:DNSMOS",
    "spk-sim": "speaker:SpeakerSimilarity",
    "wer": "words:WER",
    "cer": "words:CER",
}

_STANDARD = (
    (("utmosv2", "utmosv2", None),),
    (("utmos", "torchaudio", "SpeechMOS"), ("distillmos", "distillmos", None), ("dnsmos", "speechmos", None)),
    (("pesq", "pesq", None),),
    (("stoi", "pystoi", None),),
    (
        ("spk-sim:wavlm", "transformers", "wavlm-base-plus-sv"),
        ("spk-sim:onnx", "onnxruntime", "speaker.onnx"),
    ),
    (
        ("wer:hubert", "transformers", "hubert-large-ls960-ft"),
        ("wer:moonshine", "moonshine_onnx", "moonshine-base"),
        ("wer:whisper", "faster_whisper", "whisper-base"),
    ),
)
"""The columns of the paper's tables: for each the judges in order of preference, with the package and the local model
that each needs. The paper's own judges come first."""


def known() -> list[str]:
    return list(_METRICS)


def build(text: str) -> Metric:
    spec = Spec.parse(text)
    if spec.kind not in _METRICS:
        raise ConfigError(f"unknown metric {spec.kind!r}; known: {', '.join(_METRICS)}")
    module, _, cls = _METRICS[spec.kind].partition(":")
    metric: Metric = getattr(import_module(f".{module}", __name__), cls)(spec)
    return metric


def build_all(texts: Iterable[str]) -> list[Metric]:
    """Several metrics; one that is named twice, under two models, would share a key and is refused."""
    metrics: dict[str, Metric] = {}
    for text in texts:
        metric = build(text)
        if metrics.setdefault(metric.name, metric).judge != metric.judge:
            raise ConfigError(f"metric {metric.name!r} is asked for twice, of two judges; allowed: once in a run")
    return list(metrics.values())


def available(package: str, model: str | None) -> bool:
    """Whether a judge can work here without the network."""
    return find_spec(package) is not None and (model is None or local_model(model) is not None)


def standard() -> list[str]:
    """The paper's columns, each with the first judge that is at hand."""
    chosen = (next((n for n, package, model in judges if available(package, model)), None) for judges in _STANDARD)
    return [name for name in chosen if name is not None]
