"""What an experimenter writes: the YAML file that `dtm-codec listening new` prepares a test from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Literal

from ...ratings import ANCHOR, REFERENCE
from ...specs import Spec
from ...validation import Validated, load, require

FOLDER = "folder:"
"""A source that begins so names a folder of decoded files, which are heard at their own rate; any other is run."""

MAX_NAME_LENGTH = 60

Method = Literal["mushra", "ab", "abx"]

UNIQUE_CODES = "unique"
"""A completion code that is another one for every listener."""


@dataclass(frozen=True)
class Definition(Validated):
    reference: str
    """Folder of the original recordings, one file an utterance, or a manifest of them."""
    systems: dict[str, str]
    """What is compared: a name for the results, and `folder:PATH` (a file of the same stem for every utterance)
    or the name of a system to run, as in `dtm:small?bitrate=800`."""
    title: str = "Listening test"
    """Headline of the first page."""
    method: Method = "mushra"
    """`mushra`: rate all systems from 0 to 100. `ab`: which of two sounds better? `abx`: which of two is X?"""
    pairs: tuple[tuple[str, ...], ...] = ()
    """Of `ab` and `abx`: the systems to compare, two each; `reference` may be one. All pairs of systems if empty."""
    no_preference: bool = False
    """Of `ab`: listeners may say that neither sounds better."""
    completion_code: str | None = None
    """Shown at the end, for listeners who are paid elsewhere; `unique` gives each of them another one."""
    instructions: str = ""
    """Shown on the first page, after the general ones."""
    seed: int = 0
    """Of every draw: which trials a listener gets, in which order, and the order of the stimuli."""
    trials_per_listener: int | None = None
    """Pages that each listener gets, drawn at random; all of them if None. The paper: 8.

    A page is an utterance, in `ab` and `abx` an utterance by one pair of systems."""
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
        self._check_pairs()
        code = self.completion_code
        allowed = f"1 to {MAX_NAME_LENGTH} printable characters, or {UNIQUE_CODES!r}"
        require(
            code is None or (code.isprintable() and 1 <= len(code) <= MAX_NAME_LENGTH), "completion_code", code, allowed
        )
        for key, low, high in (
            ("trials_per_listener", 1, 1000),
            ("anchor_hz", 100, 20_000),
            ("max_seconds", 0.5, 60),
            ("loudness_lufs", -50, -10),
        ):
            value = getattr(self, key)
            require(value is None or low <= value <= high, key, value, f"{low} ... {high}")

    def _check_pairs(self) -> None:
        names = (*self.systems, REFERENCE)
        if self.method == "mushra":
            require(not self.pairs, "pairs", self.pairs, "none, with method: mushra")
        require(self.method == "ab" or not self.no_preference, "no_preference", True, "false, but with method: ab")
        for pair in self.pairs:
            fits = len(pair) == len(set(pair)) == 2 and set(pair) <= set(names)
            require(fits, "pairs", list(pair), f"two of {', '.join(names)}")
        unordered = [frozenset(pair) for pair in self.pairs]
        require(len(set(unordered)) == len(unordered), "pairs", self.pairs, "each pair once")

    def compared(self) -> tuple[tuple[str, ...], ...]:
        """The pairs of `ab` and `abx`; a single system is compared with the reference."""
        if self.method == "mushra" or self.pairs:
            return self.pairs
        return tuple(combinations(self.systems, 2)) or tuple((name, REFERENCE) for name in self.systems)


def load_definition(path: Path) -> Definition:
    """Read and check a definition. Folders in it are relative to the file."""
    definition, base = load(Definition, path), path.parent
    sources = {name: _placed(source, base) for name, source in definition.systems.items()}
    return replace(definition, reference=str(base / definition.reference), systems=sources)


def _placed(source: str, base: Path) -> str:
    if not source.startswith(FOLDER):
        return source
    spec = Spec.parse(source)
    return replace(spec, argument=str(base / (spec.argument or ""))).text
