"""Which file of a folder belongs to which utterance: by its path, or else by its name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..errors import DataError
from ..system.files import files_under
from .audio import AUDIO_SUFFIXES, READ_SUFFIXES

SHOWN = 3
"""Names that a message lists before it only counts."""


def bare_name(name: str) -> str:
    """An utterance's id or a file's path without the suffix of audio: `a/b.flac` -> `a/b`, `b@1.5` as it is."""
    path = PurePosixPath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in AUDIO_SUFFIXES else str(path)


@dataclass(frozen=True)
class Matching:
    """What a folder has for a set of utterances."""

    folder: Path
    files: Mapping[str, Path]
    """By id of the utterance."""
    missing: tuple[str, ...]
    """Ids without a file."""
    extra: tuple[str, ...]
    """Files that belong to no utterance, as paths in the folder."""

    def remarks(self) -> list[str]:
        """One line for what is missing, one for what is too much; none if all is well."""
        counted = ((self.missing, "no file for {} of the utterances: {}"), (self.extra, "{} files match none: {}"))
        return [text.format(len(names), listed(names)) for names, text in counted if names]


def listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def match(folder: Path, ids: Iterable[str]) -> Matching:
    """Find the file of each utterance.

    A file whose path in the folder is the utterance's id, whatever the suffixes, is its file. Else the last part of
    both is compared, where only one file and one utterance have it.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; allowed: a folder of audio files ({', '.join(READ_SUFFIXES)})")
    by_path: dict[str, Path] = {}
    by_name: dict[str, list[Path]] = defaultdict(list)
    for path in files_under(folder, READ_SUFFIXES):
        bare = bare_name(path.relative_to(folder).as_posix())
        if bare in by_path:
            raise DataError(f"{folder}: {by_path[bare].name} and {path.name} are one utterance; allowed: one of them")
        by_path[bare] = path
        by_name[PurePosixPath(bare).name].append(path)
    wanted = {name: bare_name(name) for name in ids}
    utterances_by_name: dict[str, list[str]] = defaultdict(list)
    for bare in wanted.values():
        utterances_by_name[PurePosixPath(bare).name].append(bare)
    files = {}
    for name, bare in wanted.items():
        last = PurePosixPath(bare).name
        if bare in by_path:
            files[name] = by_path[bare]
        elif len(by_name[last]) == len(utterances_by_name[last]) == 1:
            files[name] = by_name[last][0]
    used = set(files.values())
    extra = tuple(path.relative_to(folder).as_posix() for path in by_path.values() if path not in used)
    return Matching(folder, files, tuple(name for name in wanted if name not in files), extra)
