"""One recording, and what is known of it. Every room reads audio through `Utterance.read`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ..errors import AudioError, DataError
from .audio import AudioInfo, Samples, audio_info, breaks_off, read_audio

AUDIO_FIELDS = ("audio_filepath", "audio", "path", "wav")
FIELDS = {
    "id": ("id", "utterance_id"),
    "text": ("text", "transcript", "transcription", "sentence", "normalized_text"),
    "speaker": ("speaker", "speaker_id", "spk", "client_id"),
    "language": ("lang", "language"),
    "set": ("set",),
}
"""Names that fields have in the manifests and datasets people share; the first one with a value counts."""


@dataclass(frozen=True)
class Utterance:
    """One recording, or a segment of one.

    With `offset`, the segment that starts there is meant, `duration` seconds long or to the end of the file. Without
    `offset`, the whole file is meant, and `duration` only says how long it is.
    """

    id: str
    """Tells it from all others of its set: a name of its own, else its path, with `@offset` for a segment."""
    audio: Path | bytes
    """The file, or what is in it."""
    offset: float | None = None
    duration: float | None = None
    """Both in seconds."""
    text: str | None = None
    speaker: str | None = None
    language: str | None = None
    set: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further fields: emotion, digit, gender, split."""

    @classmethod
    def from_record(cls, record: Mapping[str, Any], audio: Path | bytes, default_id: str) -> Utterance:
        """The line of a manifest or row of a table that has this audio.

        Audio that comes as bytes is the utterance itself: an `offset` beside it says where it was once cut from.
        """
        chosen = {own: first_field(record, names) for own, names in FIELDS.items()}
        known = {own: plain_text(str(record[name])) for own, name in chosen.items() if name is not None}
        used = {*chosen.values(), first_field(record, AUDIO_FIELDS), "offset", "duration"}
        offset, duration = (None if isinstance(audio, bytes) else record.get("offset")), record.get("duration")
        if offset is None and not _is_seconds(duration):
            duration = None  # it would only say how long the file is
        if not (_is_seconds(offset) and _is_seconds(duration)):
            raise DataError(f"offset = {offset!r}, duration = {duration!r}; allowed: 0 ... 1e9 seconds or null")
        return cls(
            id=known.pop("id", "") or plain_text(default_id),
            audio=audio,
            offset=offset,
            duration=duration,
            labels={name: str(value) for name, value in record.items() if value is not None and name not in used},
            **known,
        )

    def to_record(self) -> dict[str, Any]:
        """What a line of a manifest says of it, apart from its id and where its audio is."""
        known = {"duration": self.duration, "text": self.text, "speaker": self.speaker, "lang": self.language}
        return {k: v for k, v in {**known, "set": self.set, **self.labels}.items() if v is not None}

    @cached_property
    def key(self) -> str:
        """Changes with what is judged: name, sound, text."""
        data = self.audio
        sound = hashlib.sha256(data).hexdigest() if isinstance(data, bytes) else _sha256(data, data.stat().st_mtime_ns)
        segment = "" if self.offset is None else f"\0{self.offset}\0{self.duration}"
        text = f"{self.id}\0{sound}\0{self.text}\0{self.language}{segment}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def value(self, name: str) -> str | None:
        own: str | None = next((getattr(self, own) for own, names in FIELDS.items() if name in names), None)
        return self.labels.get(name, own)

    def seconds(self) -> float:
        return self._seconds_of(audio_info(self.audio), promised=False)

    def _seconds_of(self, info: AudioInfo, *, promised: bool) -> float:
        """How long it is. promised: by the header, even if the file breaks off"""
        first, count = self._segment(info.sample_rate)
        rest = (info.promised_samples if promised else info.num_samples) - first
        if rest <= 0:
            raise AudioError(f"{self.id}: offset = {self.offset}; allowed: less than the file's {info.duration_s:g} s")
        return (rest if count is None else min(rest, count)) / info.sample_rate

    def read(self, sample_rate: int | None = None, *, start: int = 0, length: int | None = None) -> tuple[Samples, int]:
        """Mono samples (T,) and their rate: the file's own, or `sample_rate`, resampled to that.

        `start` and `length` choose a part, in samples at the rate that is returned; the rest is not decoded.
        """
        if self.offset is None and start == 0 and length is None:
            return read_audio(self.audio, sample_rate)
        own = audio_info(self.audio).sample_rate
        rate = sample_rate or own
        first, count = self._segment(own)
        skipped = start * own // rate
        left = None if count is None else count - skipped
        if length is not None:
            wanted = -(-length * own // rate)
            left = wanted if left is None else min(wanted, left)
        samples, _ = read_audio(self.audio, sample_rate, offset=first + skipped, frames=left)
        return samples[:length], rate

    def read_whole(self, sample_rate: int | None = None) -> tuple[Samples, int]:
        """What `read` gives, or an error if the file breaks off before its header says."""
        samples, rate = self.read(sample_rate)
        if lost := breaks_off(samples.size / rate, self._seconds_of(audio_info(self.audio), promised=True)):
            raise AudioError(lost)
        return samples, rate

    def _segment(self, rate: int) -> tuple[int, int | None]:
        """First sample and number of samples, at the file's own rate; None: to its end."""
        if self.offset is None:
            return 0, None
        return round(self.offset * rate), None if self.duration is None else max(1, round(self.duration * rate))


@dataclass(frozen=True)
class Failure:
    """What stands in the place of an utterance that cannot be had."""

    id: str
    reason: str


def first_field(record: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if record.get(name) is not None), None)


def plain_text(text: str) -> str:
    """Text that every program can read: a file name's bytes that are no UTF-8 are written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _is_seconds(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value < 1e9)


@lru_cache(maxsize=16)
def _sha256(path: Path, changed_ns: int) -> str:
    """Of a file as it was then. Kept, since a manifest may name hundreds of segments of one long recording."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
