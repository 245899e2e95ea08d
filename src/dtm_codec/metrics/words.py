"""Word and character error rate, by a recogniser of choice; every recogniser's text is normalised the same way.

The rate of a set is that of the corpus, total errors over total words, so each utterance weighs as its words.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from ..specs import Spec
from ..system.optional import import_optional
from .base import Metric, Sample, Score
from .recognisers import RECOGNISERS, Recogniser, recogniser


class _ErrorRate(Metric):
    unit = "%"
    higher_is_better = False
    needs_text = True
    options = ("model",)
    characters: ClassVar[bool]

    def __init__(self, spec: Spec) -> None:
        super().__init__(Spec(spec.kind, spec.choice(RECOGNISERS, "hubert"), spec.options))
        self.languages = RECOGNISERS[str(self.spec.argument)].languages

    @property
    def judge(self) -> str:
        return f"{self._recogniser().judge}, Whisper-normalised text"

    def load(self) -> None:
        import_optional("jiwer")
        normalise("", "en")
        _ = self._recogniser().loaded

    def measure(self, sample: Sample) -> Score:
        """Errors over words (or characters) in per cent; weight: words (or characters)."""
        jiwer = import_optional("jiwer")
        language = sample.language or "en"
        reference = normalise(sample.text or "", language)
        heard = self._recogniser().transcribe(sample.decoded, language)
        hypothesis = normalise(heard, language)
        alignment = (jiwer.process_characters if self.characters else jiwer.process_words)(reference, hypothesis)
        length = alignment.hits + alignment.substitutions + alignment.deletions
        errors = alignment.substitutions + alignment.deletions + alignment.insertions
        return Score(100 * errors / length, weight=length, note=heard)

    def score(self, sample: Sample) -> Score | None:
        """As any metric, and None for a text without words: the normaliser leaves out hesitations and brackets."""
        if not any(map(str.isalnum, normalise(sample.text or "", sample.language or "en"))):
            return None
        return super().score(sample)

    def _recogniser(self) -> Recogniser:
        return recogniser(str(self.spec.argument), self.spec.options.get("model"))


class WER(_ErrorRate):
    """Word error rate: `wer:hubert` (the paper's), `wer:whisper`, `wer:moonshine`."""

    label = "WER"
    characters = False


class CER(_ErrorRate):
    """Character error rate, by the same recognisers; it shares their transcripts with WER."""

    label = "CER"
    characters = True


def normalise(text: str, language: str) -> str:
    """Text as Whisper's evaluation compares it: case and marks, and in English spelling, numbers and contractions."""
    normaliser = _english() if language == "en" else _basic()
    return str(normaliser(text)).strip()


@cache
def _english() -> Any:
    return import_optional("whisper_normalizer.english").EnglishTextNormalizer()


@cache
def _basic() -> Any:
    return import_optional("whisper_normalizer.basic").BasicTextNormalizer()
