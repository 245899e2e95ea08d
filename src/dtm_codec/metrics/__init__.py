"""The judges, by name. Importing this loads none of them; building one imports its file, scoring its package.

A name is `metric[:judge][?model=PATH_OR_HUB_ID]`: `pesq`, `wer:moonshine`, `spk-sim:onnx?model=speaker.onnx`. Without
a judge, the paper's is used. Models are also found by their known names in the folder that the environment variable
DTM_METRIC_MODELS points to.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import TypeAlias

from ..errors import ConfigError
from ..specs import Spec
from .base import MODELS_VARIABLE, Metric, Sample, Score, local_model

__all__ = [
    "MODELS_VARIABLE",
    "Metric",
    "Sample",
    "Score",
    "available",
    "build",
    "build_all",
    "choose",
    "everything",
    "known",
    "standard",
]

_METRICS = {
    "pesq": "signal:PESQ",
    "stoi": "signal:STOI",
    "estoi": "signal:ESTOI",
    "si-sdr": "signal:SISDR",
    "mel": "spectral:MelDistance",
    "stft": "spectral:STFTDistance",
    "lsd": "spectral:LogSpectralDistance",
    "mcd": "cepstral:MCD",
    "f0-rmse": "pitch:F0RMSE",
    "vuv": "pitch:VoicingError",
    "visqol": "visqol:ViSQOL",
    "utmos": "mos:UTMOS",
    "utmosv2": "mos:UTMOSv2",
    "distillmos": "mos:DistillMOS",
    "dnsmos": "mos:DNSMOS",
    "spk-sim": "speaker:SpeakerSimilarity",
    "wer": "words:WER",
    "cer": "words:CER",
}

Judge: TypeAlias = tuple[str, str, str | None]
"""Full name of a metric with its judge, and what it needs: a package, and a model on disk."""

_SPEAKER: tuple[Judge, ...] = (
    ("spk-sim:wavlm", "transformers", "wavlm-base-plus-sv"),
    ("spk-sim:onnx", "onnxruntime", "speaker.onnx"),
)
_RECOGNISERS = (
    ("hubert", "transformers", "hubert-large-ls960-ft"),
    ("moonshine", "moonshine_onnx", "moonshine-base"),
    ("whisper", "faster_whisper", "whisper-base"),
)
_JUDGES: dict[str, tuple[Judge, ...]] = {
    "utmosv2": (("utmosv2", "utmosv2", None),),
    "utmos": (("utmos", "torchaudio", "SpeechMOS"),),
    "distillmos": (("distillmos", "distillmos", None),),
    "dnsmos": (("dnsmos", "speechmos", None),),
    "visqol": (("visqol:lattice", "ai_edge_litert", None), ("visqol:polynomial", "visqol", None)),
    "pesq": (("pesq", "pesq", None),),
    "stoi": (("stoi", "pystoi", None),),
    "estoi": (("estoi", "pystoi", None),),
    "si-sdr": (("si-sdr", "numpy", None),),
    "mel": (("mel", "torch", None),),
    "stft": (("stft", "torch", None),),
    "lsd": (("lsd", "torch", None),),
    "mcd": (("mcd", "kaldi_native_fbank", None),),
    "f0-rmse": (("f0-rmse", "parselmouth", None),),
    "vuv": (("vuv", "parselmouth", None),),
    "spk-sim": _SPEAKER,
    "wer": tuple((f"wer:{name}", package, model) for name, package, model in _RECOGNISERS),
    "cer": tuple((f"cer:{name}", package, model) for name, package, model in _RECOGNISERS),
}
"""For each metric its judges in order of preference. The paper's own judges come first."""

_STANDARD = (("utmosv2",), ("utmos", "distillmos", "dnsmos"), ("pesq",), ("stoi",), ("spk-sim",), ("wer",))
"""The columns of the paper's tables: for each the metrics that may stand there."""


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


def choose(text: str | None) -> list[str]:
    """The metrics that a user wrote, joined by commas. `all` is every one at hand, None the paper's columns."""
    if text is None:
        return standard()
    names = [name.strip() for name in text.split(",")]
    return list(dict.fromkeys(n for name in names for n in (everything() if name == "all" else [name])))


def standard() -> list[str]:
    """The paper's columns, each with the first judge that is at hand."""
    return _at_hand([tuple(judge for name in names for judge in _JUDGES[name]) for names in _STANDARD])


def everything() -> list[str]:
    """Every metric, each with the first judge that is at hand."""
    return _at_hand([_JUDGES[name] for name in _METRICS])


def _at_hand(columns: Iterable[tuple[Judge, ...]]) -> list[str]:
    chosen = (next((n for n, package, model in judges if available(package, model)), None) for judges in columns)
    return [name for name in chosen if name is not None]
