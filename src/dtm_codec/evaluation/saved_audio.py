"""What was decoded, kept beside the results of a run: a folder for each system, FLAC at 16 kHz.

    audio/reference/a/b.flac
    audio/opus-6-kbps-1f0c2d3e/a/b.flac

Files are named as their utterances are, so that such a folder can itself be judged as `folder:DIR`. A folder's name
ends with a digest of the system's identity: audio of a retrained model gets a folder of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..metrics.base import SAMPLE_RATE
from ..speech.audio import Samples, write_audio
from ..speech.matching import bare_name
from ..speech.utterance import Utterance
from .systems import System

FOLDER = "audio"
LONGEST_PART = 120
"""Characters of a file's or folder's name; every file system allows that."""


class SavedAudio:
    """Where the audio of these systems and utterances is, or would be."""

    def __init__(self, out: Path, systems: Sequence[System], utterances: Mapping[str, Utterance]) -> None:
        """utterances: by key."""
        self._root = out / FOLDER
        self._folders = {system.name: _folder_name(system) for system in systems}
        names = {key: _file_name(utterance.id) for key, utterance in utterances.items()}
        taken = Counter(name.lower() for name in names.values())
        self._names = {key: f"{name}-{key}" if taken[name.lower()] > 1 else name for key, name in names.items()}

    def decoded(self, system: str, key: str) -> Path:
        return self._root / self._folders[system] / f"{self._names[key]}.flac"

    def reference(self, key: str) -> Path:
        return self._root / "reference" / f"{self._names[key]}.flac"

    def forget(self, system: str, key: str) -> None:
        """Remove what an earlier version of this recording left under the same name."""
        self.decoded(system, key).unlink(missing_ok=True)
        self.reference(key).unlink(missing_ok=True)


def save(path: Path, audio: Samples) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_audio(path, audio, SAMPLE_RATE)


def _folder_name(system: System) -> str:
    digest = hashlib.sha256(f"{system.name}\0{system.identity}".encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9.]+", "-", system.title.lower()).strip("-.")
    return f"{readable[:60] or 'system'}-{digest}"


def _file_name(utterance: str) -> str:
    """An id as a path below a folder, whatever is in it."""
    parts = [part for part in bare_name(utterance).split("/") if part not in ("", ".", "..")]
    safe = [re.sub(r'[\x00-\x1f<>:"\\|?*]', "_", part)[:LONGEST_PART] for part in parts]
    return "/".join(safe) or "utterance"
