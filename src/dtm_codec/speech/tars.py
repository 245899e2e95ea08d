"""WebDataset tars, in which the files of one utterance follow each other."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .audio import AUDIO_SUFFIXES
from .utterance import Failure, Utterance, plain_text

if TYPE_CHECKING:
    from typing import Self  # Python 3.11


def read_tar(source: Path | IO[bytes], name: str) -> Iterator[Utterance | Failure]:
    """The utterances of a tar, with the audio's bytes and the id 'name/key'; where it breaks off, a failure.

    The files of an utterance share their name up to the first dot, its key: audio, and `txt` or `json` where known.
    """
    try:
        path, stream = (source, None) if isinstance(source, Path) else (None, source)
        with tarfile.open(path, "r|*", stream, tarinfo=_Member) as tar:
            members = (member for member in tar if member.isfile() or member.islnk() or member.issym())
            for key, group in groupby(members, lambda member: _split(member.name)[0]):
                contents, links = {}, []
                for member in group:
                    if not member.isfile():
                        links.append(member.name)
                        continue
                    content = tar.extractfile(member)
                    assert content is not None  # it is a file
                    contents[_split(member.name)[1]] = content.read()
                yield _utterance(plain_text(f"{name}/{key}"), contents, links)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        yield Failure(plain_text(name), f"the tar cannot be read, or not to its end: {error}")


class _Member(tarfile.TarInfo):
    """A file in a tar. Without it, `tarfile` takes a header that is damaged or cut off for the end of the tar."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the mark of the real end
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


def _utterance(name: str, contents: Mapping[str, bytes], links: Sequence[str]) -> Utterance | Failure:
    if links:
        problem = f"links, which a tar read in order cannot follow (pack it with --dereference): {', '.join(links)}"
        return Failure(name, problem)
    audio = next((data for field, data in contents.items() if f".{field}".endswith(AUDIO_SUFFIXES)), None)
    if audio is None:
        return Failure(name, f"no audio among its files: {', '.join(contents)}")
    try:
        record = json.loads(contents.get("json", b"{}"))
        text = contents.get("txt", b"").decode().strip()
    except (ValueError, RecursionError) as error:
        return Failure(name, f"its text or JSON cannot be read: {error}")
    record = (record if isinstance(record, dict) else {}) | ({"text": text} if text else {})
    return replace(Utterance.from_record(record, audio, name), id=name)


def _split(name: str) -> tuple[str, str]:
    """Key and field of a member: 'a/b.seg1.flac' -> 'a/b', 'seg1.flac'."""
    folder, slash, base = name.removeprefix("./").rpartition("/")
    stem, _, suffix = base.partition(".")
    return f"{folder}{slash}{stem}", suffix.lower()
