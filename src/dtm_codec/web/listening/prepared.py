"""A test on disk: `test.json` and one WAV file a stimulus; the ratings join them as `ratings.sqlite`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ...errors import AudioError, ConfigError
from ...ratings import ANCHOR, REFERENCE
from ...specs import Spec
from ...speech.anchor import low_pass
from ...speech.audio import READ_SUFFIXES, Samples, audio_info, read_audio, resample, write_audio
from ...speech.folders import read_set
from ...speech.matching import match
from ...speech.utterance import Utterance
from ...system.files import write_atomically
from ...validation import Validated, load
from .definition import FOLDER, Definition, Method
from .stimuli import MIN_SECONDS, aligned, matched

TEST_FILE, AUDIO_FOLDER, RATINGS_FILE = "test.json", "audio", "ratings.sqlite"

RoundTrip = Callable[[Samples, int], tuple[Samples, int]]
"""Code and decode: samples (T,) and their rate in, the decoded ones and theirs out."""

_Runner = Callable[[str, Samples, int], tuple[Samples, int]]
"""The same for an utterance of that name."""


@dataclass(frozen=True)
class ListeningTest(Validated):
    """A prepared test: what the server needs to know of it."""

    title: str
    instructions: str
    seed: int
    utterances: tuple[str, ...]
    """Of the trials; each listener gets `trials_per_listener` of them."""
    training: str | None
    """Utterance of the training page."""
    systems: tuple[str, ...]
    """Names for the results; hidden reference and, in a MUSHRA test, anchor included."""
    trials_per_listener: int
    method: Method = "mushra"
    pairs: tuple[tuple[str, ...], ...] = ()
    """What is compared in `ab` and `abx`."""
    no_preference: bool = False
    completion_code: str | None = None
    format: Literal[1] = 1

    def audio_path(self, folder: Path, utterance: str, system: str) -> Path:
        """The stimulus inside the test's folder; named by numbers, so that no name in a test is ever a path."""
        row = self._rows().index(utterance)
        return folder / AUDIO_FOLDER / f"{row:04d}-{self.systems.index(system):02d}.wav"

    def _rows(self) -> list[str]:
        return [*self.utterances, *([self.training] if self.training else [])]

    def save(self, folder: Path) -> None:
        """Write `test.json`: the last file of a preparation, so a folder that has it is complete."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
        write_atomically(folder / TEST_FILE, text.encode())


def load_test(folder: Path) -> ListeningTest:
    """Read a prepared test and check that its stimuli are there."""
    path = folder / TEST_FILE
    if not path.is_file():
        raise ConfigError(f"{folder} is no prepared listening test: it has no {TEST_FILE}")
    test = load(ListeningTest, path)
    for utterance in test._rows():
        for system in test.systems:
            if not test.audio_path(folder, utterance, system).is_file():
                raise ConfigError(f"{folder}: no stimulus of utterance {utterance!r} by {system!r}; prepare it anew")
    return test


def prepare(
    definition: Definition,
    folder: Path,
    systems: Callable[[str], RoundTrip],
    progress: Callable[[list[str]], Iterator[str]] = iter,
) -> ListeningTest:
    """Make the stimuli of a test in `folder`.

    systems: gives the system that a source of the definition names. progress: wraps the utterances, for a bar.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; allowed: a new folder, for ratings are never overwritten")
    references = _recordings(Path(definition.reference))
    runners = {name: _runner(source, systems, list(references)) for name, source in definition.systems.items()}
    training, utterances = _split(list(references), definition)
    pairs = definition.compared()
    pages = len(utterances) * (len(pairs) if pairs else 1)
    test = ListeningTest(
        title=definition.title,
        instructions=definition.instructions,
        seed=definition.seed,
        utterances=utterances,
        training=training,
        systems=(REFERENCE, *([] if pairs else [ANCHOR]), *definition.systems),
        trials_per_listener=min(definition.trials_per_listener or pages, pages),
        method=definition.method,
        pairs=pairs,
        no_preference=definition.no_preference,
        completion_code=definition.completion_code,
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as temporary:
        unfinished = Path(temporary)
        (unfinished / AUDIO_FOLDER).mkdir()
        for utterance in progress(test._rows()):
            stimuli, sample_rate = _stimuli(utterance, references[utterance], runners, definition)
            for system, audio in stimuli.items():
                write_audio(test.audio_path(unfinished, utterance, system), audio, sample_rate)
        (unfinished / AUDIO_FOLDER).rename(folder / AUDIO_FOLDER)
    test.save(folder)
    return test


def _stimuli(
    name: str, original: Utterance, runners: dict[str, _Runner], d: Definition
) -> tuple[dict[str, Samples], int]:
    """All stimuli of one trial, (T,) each, and their sample rate: the reference's."""
    reference, rate = original.read(length=round(d.max_seconds * audio_info(original.audio).sample_rate))
    if reference.size < MIN_SECONDS * rate:
        raise AudioError(f"utterance {name!r}: {reference.size / rate:.2f} s; allowed: {MIN_SECONDS:g} s or more")
    stimuli = {REFERENCE: reference}
    if d.method == "mushra":
        stimuli[ANCHOR] = low_pass(reference, rate, d.anchor_hz)
    for system, run in runners.items():
        decoded, decoded_rate = run(name, reference, rate)
        stimuli[system] = aligned(reference, resample(decoded, decoded_rate, rate), rate)
    try:
        return matched(stimuli, rate, d.loudness_lufs), rate
    except AudioError as error:
        raise AudioError(f"utterance {name!r}: {error}") from None


def _runner(source: str, systems: Callable[[str], RoundTrip], utterances: list[str]) -> _Runner:
    if not source.startswith(FOLDER):
        system = systems(source)
        return lambda _, audio, rate: system(audio, rate)
    spec = Spec.parse(source)
    spec.allow_options(("name", "bps", "delay"))  # as in an evaluation; here names are given, and delays are found
    found = match(Path(spec.argument or ""), utterances)
    if found.missing:
        raise AudioError(f"{found.folder} has no file for utterance {found.missing[0]!r}")
    return lambda utterance, _, __: read_audio(found.files[utterance])


def _recordings(source: Path) -> dict[str, Utterance]:
    """The audio files of a folder, but not of folders in it, or the lines of a manifest; by name without suffix."""
    if not source.is_dir() and not source.is_file():
        raise ConfigError(f"{source} is no folder or manifest")
    recordings: dict[str, Utterance] = {}
    for recording in read_set(source):
        path = Path(recording.id)
        if source.is_dir() and len(path.parts) > 1:
            continue
        name = path.stem if path.suffix.lower() in READ_SUFFIXES else path.name  # a segment's name ends in @offset
        if name in recordings:
            raise ConfigError(f"{source}: {recordings[name].id} and {recording.id} have the same stem")
        recordings[name] = recording
    if not recordings:
        raise ConfigError(f"{source} has no audio files ({', '.join(READ_SUFFIXES)})")
    return recordings


def _split(stems: list[str], definition: Definition) -> tuple[str | None, tuple[str, ...]]:
    """Training utterance and trials; a single utterance is a trial, without training."""
    training = definition.training
    if training is not None and training not in stems:
        raise ConfigError(f"training = {training!r}; allowed: one of {', '.join(stems)}")
    if training is None and len(stems) > 1:
        training = stems[0]
    utterances = tuple(stem for stem in stems if stem != training)
    if not utterances:
        raise ConfigError("the only utterance is the training page's; allowed: one more for a trial")
    return training, utterances
