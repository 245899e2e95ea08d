"""Speaker similarity: cosine of two speaker embeddings, reference against decoded (paper Section 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import AudioError, ModelError
from ..specs import Spec
from ..speech.audio import Samples
from ..system.files import fingerprint
from ..system.optional import import_optional, package_version
from .base import SAMPLE_RATE, Last, Metric, Sample, Score, find_model, hub_or_local
from .onnx import one_thread_session

Embedder = Callable[[Samples], npt.NDArray[np.float32]]

WAVLM_HUB_ID = "microsoft/wavlm-base-plus-sv"
"""The verification WavLM that transformers loads; the paper's WavLM-Large has no such release: give its folder."""

SHORTEST = 0.3
"""Seconds a speaker encoder needs."""


class SpeakerSimilarity(Metric):
    """`spk-sim:wavlm` (transformers, folder or hub id) or `spk-sim:onnx` (a file: Kaldi filterbank in, vector out)."""

    label = "Spk-Sim"
    decimals = 3
    options = ("model",)

    def __init__(self, spec: Spec) -> None:
        super().__init__(Spec(spec.kind, spec.choice(("wavlm", "onnx"), "wavlm"), spec.options))
        self._reference = Last(self._embed)

    @property
    def judge(self) -> str:
        if self.spec.argument == "onnx":
            path = find_model(self.spec, "speaker.onnx")
            return f"{path.name} {fingerprint(path)} ({package_version('onnxruntime')}), cosine"
        model = hub_or_local(self.spec, "wavlm-base-plus-sv", WAVLM_HUB_ID)
        name = f"{Path(model).name} {fingerprint(Path(model))}" if Path(model).is_dir() else model
        return f"{name} ({package_version('transformers')}), cosine"

    def load(self) -> None:
        self._embedder()

    def measure(self, sample: Sample) -> Score:
        if sample.decoded.size < SHORTEST * SAMPLE_RATE:
            raise AudioError(f"{self.name} has no value for less than {SHORTEST} s")
        return Score(float(self._reference(sample.reference) @ self._embed(sample.decoded)))

    def _embedder(self) -> Embedder:
        if self.spec.argument == "onnx":
            return _onnx_embedder(find_model(self.spec, "speaker.onnx"))
        return _wavlm_embedder(hub_or_local(self.spec, "wavlm-base-plus-sv", WAVLM_HUB_ID))

    def _embed(self, audio: Samples) -> npt.NDArray[np.float32]:
        """(T,) -> (D,) of unit length"""
        vector = self._embedder()(audio)
        return vector / max(float(np.linalg.norm(vector)), 1e-12)


def log_mel_filterbank(audio: Samples) -> npt.NDArray[np.float32]:
    """80 bands as Kaldi has them: what speaker encoders of the Kaldi and WeSpeaker family hear. (T,) -> (frames, 80)

    No dither, so that a file always has the same features.
    """
    kaldi = import_optional("kaldi_native_fbank")
    options = kaldi.FbankOptions()
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = "hamming"
    options.mel_opts.num_bins = 80
    bank = kaldi.OnlineFbank(options)
    bank.accept_waveform(SAMPLE_RATE, (audio * 32768).tolist())  # Kaldi's samples are 16-bit integers
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])


@cache
def _onnx_embedder(path: Path) -> Embedder:
    session = one_thread_session("spk-sim:onnx", path)
    (source,) = session.get_inputs()

    def embed(audio: Samples) -> npt.NDArray[np.float32]:
        features = log_mel_filterbank(audio)
        features -= features.mean(axis=0)
        embedding: npt.NDArray[np.float32] = session.run(None, {source.name: features[None]})[0]
        return embedding.reshape(-1)

    return embed


@cache
def _wavlm_embedder(model: str) -> Embedder:
    import torch

    transformers = import_optional("transformers")
    try:
        extractor = transformers.AutoFeatureExtractor.from_pretrained(model)
        network = transformers.AutoModelForAudioXVector.from_pretrained(model).eval()
    except (OSError, ValueError) as error:
        raise ModelError(f"spk-sim:wavlm: cannot load {model!r} ({str(error).splitlines()[0]})") from None

    def embed(audio: Samples) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            inputs = extractor(audio, sampling_rate=SAMPLE_RATE, return_tensors="pt")
            embedding: npt.NDArray[np.float32] = network(**inputs).embeddings[0].float().numpy()
        return embedding

    return embed
