"""WebDataset shards: tars in which the files of one utterance follow each other."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from .items import AUDIO_SUFFIXES, SPEAKER_FIELDS, TEXT_FIELDS, Item, Part, Source, plain_text, text_field

if TYPE_CHECKING:
    from typing import Self  # Python 3.11


@dataclass(frozen=True)
class Tars(Source):
    """The files of an utterance share their name up to the first dot: audio, and `txt` or `json` where known."""

    files: tuple[str, ...]

    def parts(self, size: int) -> Iterator[Part]:
        """Every tar is a part, of whatever size it is: to divide it, it would have to be read."""
        return (Part(file, 0, 0, None) for file in self.files)

    def read(self, part: Part) -> Iterator[Item]:
        """The items of a tar; where it breaks off, an item with that problem."""
        try:
            with tarfile.open(self.root / part.file, "r|*", tarinfo=_Member) as tar:
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
                    yield _item(plain_text(f"{part.file}/{key}"), contents, links)
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            yield Item(plain_text(part.file), None, problem=f"the tar cannot be read, or not to its end: {error}")


class _Member(tarfile.TarInfo):
    """A file in a tar. Without it, `tarfile` takes a header that is damaged or cut off for the end of the tar."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        """Read the next header."""
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the mark of the real end
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


def _item(item_id: str, contents: Mapping[str, bytes], links: Sequence[str]) -> Item:
    if links:
        problem = f"links, which a tar read in order cannot follow (pack it with --dereference): {', '.join(links)}"
        return Item(item_id, None, problem=problem)
    audio = next((data for name, data in contents.items() if f".{name}".endswith(AUDIO_SUFFIXES)), None)
    if audio is None:
        return Item(item_id, None, problem=f"no audio among its files: {', '.join(contents)}")
    try:
        record = json.loads(contents.get("json", b"{}"))
        text = contents["txt"].decode().strip() if "txt" in contents else None
    except ValueError as error:
        return Item(item_id, None, problem=f"its text or JSON cannot be read: {error}")
    record = record if isinstance(record, dict) else {}
    return Item(item_id, audio, text or text_field(record, TEXT_FIELDS), text_field(record, SPEAKER_FIELDS))


def _split(name: str) -> tuple[str, str]:
    """Key and field of a member: 'a/b.seg1.flac' -> 'a/b', 'seg1.flac'."""
    folder, slash, base = name.removeprefix("./").rpartition("/")
    stem, _, suffix = base.partition(".")
    return f"{folder}{slash}{stem}", suffix.lower()
