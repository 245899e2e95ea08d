"""What each listener gets: trials drawn and ordered from the seed, stimuli under names that tell nothing."""

from __future__ import annotations

import hashlib
import hmac
import random
from dataclasses import dataclass

from ...ratings import REFERENCE
from .prepared import ListeningTest

ALIAS_LENGTH = 32


@dataclass(frozen=True)
class Stimulus:
    utterance: str
    system: str
    rated: bool
    """False for the open reference and for the training page: these are heard, not recorded."""


@dataclass(frozen=True)
class Page:
    """One page of a listener's test. It has aliases only, so that a browser never learns what it plays."""

    reference: str
    stimuli: tuple[str, ...]


@dataclass(frozen=True)
class Session:
    """The whole test of one listener; the same whenever it is made from the same seed, secret and number."""

    training: Page | None
    trials: tuple[Page, ...]
    stimuli: dict[str, Stimulus]
    """By alias."""

    @property
    def volume(self) -> str:
        """The sound to set the volume by: the first reference."""
        return (self.training or self.trials[0]).reference


def make_session(test: ListeningTest, secret: bytes, listener: int) -> Session:
    """Draw the test of listener number `listener` (1, 2, ...)."""
    rng = random.Random(f"{test.seed}/{listener}")
    drawn = rng.sample(test.utterances, test.trials_per_listener)
    stimuli: dict[str, Stimulus] = {}

    def page(utterance: str, rated: bool) -> Page:
        order = rng.sample(test.systems, len(test.systems))
        reference = alias(secret, listener, utterance, REFERENCE, is_open=True)
        aliases = [alias(secret, listener, utterance, system) for system in order]
        stimuli[reference] = Stimulus(utterance, REFERENCE, rated=False)
        stimuli.update((name, Stimulus(utterance, system, rated)) for name, system in zip(aliases, order, strict=True))
        return Page(reference, tuple(aliases))

    trials = tuple(page(utterance, rated=True) for utterance in drawn)
    training = page(test.training, rated=False) if test.training else None
    return Session(training, trials, stimuli)


def alias(secret: bytes, listener: int, utterance: str, system: str, is_open: bool = False) -> str:
    """A stimulus's name for one listener: without the secret, neither guessed nor compared between listeners.

    Lengths are part of what is hashed, and so is whether it is open: no two stimuli share a name, whatever the names
    of utterances and systems.
    """
    parts = (str(listener), "open" if is_open else "hidden", utterance, system)
    message = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(secret, message.encode(), hashlib.sha256).hexdigest()[:ALIAS_LENGTH]
