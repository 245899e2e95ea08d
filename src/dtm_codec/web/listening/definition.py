"""What an experimenter writes: the YAML file that `dtm-codec listening new` prepares a test from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...ratings import ANCHOR, REFERENCE
from ...validation import Validated, load, require

FOLDER = "folder:"
"""A source that begins so names a folder of decoded files; any other source is a system to run."""

MAX_NAME_LENGTH = 60


@dataclass(frozen=True)
class Definition(Validated):
    reference: str
    """Folder of the original recordings, one file an utterance, or a manifest of them."""
    systems: dict[str, str]
    """What is compared: a name for the results, and `folder:PATH` (a file of the same stem for every utterance)
    or the name of a system to run, as in `dtm:small?bitrate=800`."""
    title: str = "Listening test"
    instructions: str = ""
    """Shown on the first page, after the general ones."""
    seed: int = 0
    """Of every draw: which trials a listener gets, in which order, and the order of the stimuli."""
    trials_per_listener: int | None = None
    """Utterances that each listener rates, drawn at random; all of them if None. The paper: 8."""
    training: str | None = None
    """Stem of the utterance of the training page; the first one if None. It is not among the trials."""
    anchor_hz: float = 3500.0
    """Cut-off of the anchor. The paper and BS.1534's low anchor: 3.5 kHz."""
    max_seconds: float = 12.0
    """Longer utterances are cut to this; BS.1534 recommends stimuli of about 10 s, 12 s at most."""
    loudness_lufs: float = -23.0
    """Loudness of every stimulus (BS.1770)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.systems), "systems", self.systems, "one system or more")
        for name in self.systems:
            allowed = f"1 to {MAX_NAME_LENGTH} printable characters, and not {REFERENCE!r} or {ANCHOR!r}"
            fits = name.isprintable() and 1 <= len(name) <= MAX_NAME_LENGTH and name not in (REFERENCE, ANCHOR)
            require(fits, "a name in systems", name, allowed)
        for key, low, high in (
            ("trials_per_listener", 1, 1000),
            ("anchor_hz", 100, 20_000),
            ("max_seconds", 0.5, 60),
            ("loudness_lufs", -50, -10),
        ):
            value = getattr(self, key)
            require(value is None or low <= value <= high, key, value, f"{low} ... {high}")


def load_definition(path: Path) -> Definition:
    """Read and check a definition. Folders in it are relative to the file."""
    definition, base = load(Definition, path), path.parent
    sources = {
        name: f"{FOLDER}{base / source.removeprefix(FOLDER)}" if source.startswith(FOLDER) else source
        for name, source in definition.systems.items()
    }
    return replace(definition, reference=str(base / definition.reference), systems=sources)
