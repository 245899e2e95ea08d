"""Speech recognisers for WER and CER, behind one call: audio in, text out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..errors import ModelError
from ..specs import Spec
from ..speech.audio import Samples
from ..system.files import fingerprint
from ..system.optional import import_optional, package_version
from .base import SAMPLE_RATE, Last, find_model, hub_or_local
from .onnx import one_thread_session


class Recogniser(ABC):
    languages: ClassVar[frozenset[str] | None]
    """What it understands; None is many."""

    def __init__(self, model: str | None) -> None:
        self.spec = Spec("wer", self.__class__.__name__.lower(), {"model": model} if model else {})
        self.transcribe = Last(self.hear)
        """`hear`, with the last array's transcript kept, for CER beside WER."""

    @property
    @abstractmethod
    def judge(self) -> str:
        """Package, model and version."""

    @cached_property
    @abstractmethod
    def loaded(self) -> Any:
        """The network, and what it needs beside it; loaded when it is first used."""

    @abstractmethod
    def hear(self, audio: Samples, language: str) -> str:
        """What is said in (T,) at 16 kHz."""


class HuBERT(Recogniser):
    """HuBERT-large fine-tuned on LibriSpeech 960 h, greedy CTC: the paper's judge."""

    languages = frozenset({"en"})

    @property
    def _model(self) -> str:
        return hub_or_local(self.spec, "hubert-large-ls960-ft", "facebook/hubert-large-ls960-ft")

    @property
    def judge(self) -> str:
        path = Path(self._model)
        name = f"{path.name} {fingerprint(path)}" if path.is_dir() else self._model
        return f"{name}, greedy CTC ({package_version('transformers')})"

    @cached_property
    def loaded(self) -> tuple[Any, Any]:
        transformers = import_optional("transformers")
        try:
            processor = transformers.Wav2Vec2Processor.from_pretrained(self._model)
            return processor, transformers.AutoModelForCTC.from_pretrained(self._model).eval()
        except (OSError, ValueError) as error:
            raise ModelError(f"wer:hubert: cannot load {self._model!r} ({str(error).splitlines()[0]})") from None

    def hear(self, audio: Samples, language: str) -> str:
        import torch

        processor, network = self.loaded
        with torch.inference_mode():
            inputs = processor(audio, sampling_rate=SAMPLE_RATE, return_tensors="pt")
            tokens = network(inputs.input_values).logits.argmax(dim=-1)
        return str(processor.batch_decode(tokens)[0])


class Whisper(Recogniser):
    """Whisper through faster-whisper; `model` is a CTranslate2 folder or a size such as large-v3."""

    languages = None

    @property
    def _model(self) -> str:
        given = self.spec.options.get("model")
        return given if given and not Path(given).exists() else str(find_model(self.spec, "whisper-base"))

    @property
    def judge(self) -> str:
        path = Path(self._model)
        name = f"{path.name} {fingerprint(path)}" if path.is_dir() else f"whisper {self._model}"
        return f"{name}, beam 5 ({package_version('faster_whisper')})"

    @cached_property
    def loaded(self) -> Any:
        package = import_optional("faster_whisper")
        try:
            return package.WhisperModel(self._model, device="cpu", compute_type="int8", cpu_threads=1)
        except Exception as error:  # the package downloads by size
            raise ModelError(f"wer:whisper: cannot load {self._model!r} ({type(error).__name__}: {error})") from None

    def hear(self, audio: Samples, language: str) -> str:
        """One pass without temperature fallback or context, so that a result can be repeated."""
        segments, _ = self.loaded.transcribe(
            audio,
            language=language,
            beam_size=5,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return " ".join(segment.text.strip() for segment in segments)


class Moonshine(Recogniser):
    """Moonshine base as quantised ONNX, English, quick on a CPU."""

    languages = frozenset({"en"})
    longest = 60.0
    """Seconds it was made for; longer audio is heard in pieces."""

    @property
    def _folder(self) -> Path:
        return find_model(self.spec, "moonshine-base")

    @property
    def judge(self) -> str:
        package = package_version("moonshine_onnx")
        return f"{self._folder.name} {fingerprint(self._folder)}, greedy ({package})"

    @cached_property
    def loaded(self) -> tuple[Any, Any]:
        package = import_optional("moonshine_onnx")
        tokenizers = import_optional("tokenizers")
        size = "tiny" if "tiny" in self._folder.name else "base"
        try:
            model = package.MoonshineOnnxModel(models_dir=str(self._folder), model_name=size)
            tokenizer = tokenizers.Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        except Exception as error:  # neither package's errors have a common base
            raise ModelError(f"wer:moonshine: cannot load {self._folder} ({error})") from None
        model.encoder = one_thread_session("wer:moonshine", self._folder / "encoder_model.onnx")
        model.decoder = one_thread_session("wer:moonshine", self._folder / "decoder_model_merged.onnx")
        return model, tokenizer

    def hear(self, audio: Samples, language: str) -> str:
        model, tokenizer = self.loaded
        pieces = np.array_split(audio, int(np.ceil(audio.size / (self.longest * SAMPLE_RATE))))
        shortest = SAMPLE_RATE // 5  # its convolutions need that much
        padded = (np.pad(piece, (0, max(0, shortest - piece.size))) for piece in pieces)
        heard = (tokenizer.decode_batch(model.generate(piece[None].astype(np.float32)))[0] for piece in padded)
        return " ".join(text.strip() for text in heard)


RECOGNISERS: dict[str, type[Recogniser]] = {"hubert": HuBERT, "whisper": Whisper, "moonshine": Moonshine}


@cache
def recogniser(name: str, model: str | None) -> Recogniser:
    """The recogniser of that name and model; WER and CER share one."""
    return RECOGNISERS[name](model)
