"""Folders of speech: plain ones, and LibriSpeech and MLS as they lie on disk after unpacking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ..errors import DataError
from ..system.files import files_under
from .audio import AUDIO_SUFFIXES, READ_SUFFIXES
from .manifest import read_manifest
from .utterance import Utterance, plain_text

Corpus = Literal["librispeech", "mls"]

_MLS_LANGUAGES = {
    "mls_dutch": "nl",
    "mls_english": "en",
    "mls_french": "fr",
    "mls_german": "de",
    "mls_italian": "it",
    "mls_polish": "pl",
    "mls_portuguese": "pt",
    "mls_spanish": "es",
}


def read_set(source: Path, *, complete: bool = False) -> list[Utterance]:
    """The recordings of a folder, a manifest, or a single audio file.

    complete: take the transcripts of a folder too, and refuse a manifest that names a file which is not there.
    """
    if source.is_dir():
        return list(_read_folder(source, complete))
    if not source.is_file():
        raise DataError(f"no speech at {str(source)!r}; allowed: audio, a folder of it, or a JSON-lines manifest")
    if source.suffix.lower() in AUDIO_SUFFIXES:
        return [Utterance(source.name, source)]
    return list(read_manifest(source, must_exist=complete))


def _read_folder(folder: Path, complete: bool) -> Iterator[Utterance]:
    """Transcripts are those that LibriSpeech or MLS have for the file's stem, or a `.txt` beside it."""
    known = {u.id: u for read in PUBLISHED.values() for u in read(folder)} if complete else {}
    for path in files_under(folder, READ_SUFFIXES):
        name, beside = plain_text(path.relative_to(folder).as_posix()), path.with_suffix(".txt")
        text = _text(beside).strip() if complete and path.stem not in known and beside.is_file() else None
        utterance = known.get(path.stem) or Utterance(name, path, text=text)
        language = (_mls_language(path) if complete else None) or utterance.language
        yield replace(utterance, id=name, audio=path, language=language)


def librispeech(folder: Path) -> Iterator[Utterance]:
    """SUBSET/SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt with lines 'ID TEXT', and ID.flac beside it."""
    for path in files_under(folder, (".txt",)):
        if path.name.endswith(".trans.txt"):
            for name, text in _lines(path):
                audio, speaker = path.parent / f"{name}.flac", name.partition("-")[0]
                yield Utterance(name, audio, text=text, speaker=speaker, language="en")


def mls(folder: Path) -> Iterator[Utterance]:
    """SPLIT/transcripts.txt with lines 'SPEAKER_BOOK_ID<tab>TEXT', and SPLIT/audio/SPEAKER/BOOK/*.flac or *.opus."""
    for path in files_under(folder, (".txt",)):
        if path.name == "transcripts.txt":
            language = _mls_language(path)
            for name, text in _lines(path):
                speaker, _, rest = name.partition("_")
                flac = path.parent / "audio" / speaker / rest.partition("_")[0] / f"{name}.flac"
                opus = flac.with_suffix(".opus")
                audio = opus if opus.exists() else flac
                yield Utterance(name, audio, text=text, speaker=speaker, language=language)


PUBLISHED: dict[Corpus, Callable[[Path], Iterator[Utterance]]] = {"librispeech": librispeech, "mls": mls}
"""What the transcripts of a corpus list, there or not; the ids are those of the corpus."""


def _mls_language(path: Path) -> str | None:
    """By the folder that MLS comes in, by its name here or by that of what a link leads to."""
    parts = (*path.absolute().parts, *path.resolve().parts)
    return next((_MLS_LANGUAGES[part] for part in parts if part in _MLS_LANGUAGES), None)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """An identifier, white space, the text."""
    for line in _text(path).splitlines():
        name, *text = line.split(maxsplit=1) or [""]
        if text:
            yield name, text[0]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from error
