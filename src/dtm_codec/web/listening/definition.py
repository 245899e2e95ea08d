"""What an experimenter writes: the YAML file that `dtm-codec listening new` prepares a test from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError, MissingExtraError

REFERENCE = "reference"
"""The hidden reference, rated like any system."""

ANCHOR = "anchor"
"""The low-passed reference, rated like any system."""

FOLDER = "folder:"
"""A source that begins so names a folder of decoded files; any other source is a system to run."""

MAX_NAME_LENGTH = 60


@dataclass(frozen=True)
class Definition:
    """A listening test before its stimuli are made."""

    reference: Path
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
        if not self.systems:
            raise ConfigError("systems is empty; allowed: one system or more")
        for name in self.systems:
            if not name.isprintable() or not 1 <= len(name) <= MAX_NAME_LENGTH or name in (REFERENCE, ANCHOR):
                allowed = f"1 to {MAX_NAME_LENGTH} printable characters, and not {REFERENCE!r} or {ANCHOR!r}"
                raise ConfigError(f"systems: name {name!r}; allowed: {allowed}")
        for key, low, high in (
            ("trials_per_listener", 1, 1000),
            ("anchor_hz", 100, 20_000),
            ("max_seconds", 0.5, 60),
            ("loudness_lufs", -50, -10),
        ):
            value = getattr(self, key)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{key} = {value!r}; allowed: {low} ... {high}")


_TYPES: dict[str, tuple[type, ...]] = {
    "reference": (str,),
    "title": (str,),
    "instructions": (str,),
    "seed": (int,),
    "trials_per_listener": (int, type(None)),
    "training": (str, type(None)),
    "anchor_hz": (int, float),
    "max_seconds": (int, float),
    "loudness_lufs": (int, float),
}


def load_definition(path: Path) -> Definition:
    """Read and check a definition. Folders in it are relative to the file."""
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("pyyaml", "web") from None
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected keys and values, got {type(data).__name__}")
    try:
        return _parse(data, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _parse(data: dict[Any, Any], base: Path) -> Definition:
    known = [item.name for item in dataclasses.fields(Definition)]
    for key in data:
        if key not in known:
            raise ConfigError(f"unknown key {key!r}; known keys: {', '.join(known)}")
    for key in ("reference", "systems"):
        if key not in data:
            raise ConfigError(f"the key {key!r} is missing")
    for key, types in _TYPES.items():
        if key in data and (not isinstance(data[key], types) or isinstance(data[key], bool)):
            names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
            raise ConfigError(f"{key} = {data[key]!r}; expected {names}")
    systems = data["systems"]
    if not isinstance(systems, dict) or not all(isinstance(x, str) for pair in systems.items() for x in pair):
        raise ConfigError(f"systems = {systems!r}; expected names with a source each, as in 'VFR 800: folder:decoded'")
    sources = {
        name: f"{FOLDER}{base / source.removeprefix(FOLDER)}" if source.startswith(FOLDER) else source
        for name, source in systems.items()
    }
    return Definition(**{**data, "reference": base / data["reference"], "systems": sources})
