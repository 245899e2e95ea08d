"""What each listener gets: trials drawn and ordered from the seed, stimuli under names that tell nothing."""

from __future__ import annotations

import hashlib
import hmac
import random
from dataclasses import dataclass

from .definition import REFERENCE
from .prepared import ListeningTest

ALIAS_LENGTH = 32


@dataclass(frozen=True)
class Stimulus:
    """One sound on a page, as the server knows it."""

    utterance: str
    system: str
    rated: bool
    """False for the open reference and for the training page: these are heard, not recorded."""


@dataclass(frozen=True)
class Page:
    """One page of a listener's test: aliases only, so that a browser never learns what it plays."""

    reference: str
    stimuli: tuple[str, ...]


@dataclass(frozen=True)
class Session:
    """The whole test of one listener; the same whenever it is made from the same seed, secret and number."""

    training: Page | None
    trials: tuple[Page, ...]
    stimuli: dict[str, Stimulus]
    """By alias."""


def make_session(test: ListeningTest, secret: bytes, listener: int) -> Session:
    """Draw the test of listener number `listener` (1, 2, ...)."""
    rng = random.Random(f"{test.seed}/{listener}")
    drawn = rng.sample(test.utterances, test.trials_per_listener)
    stimuli: dict[str, Stimulus] = {}

    def page(utterance: str, rated: bool) -> Page:
        order = rng.sample(test.systems, len(test.systems))
        aliases = [alias(secret, listener, utterance, kind) for kind in ("open", *order)]
        stimuli[aliases[0]] = Stimulus(utterance, REFERENCE, rated=False)
        stimuli.update((name, Stimulus(utterance, kind, rated)) for name, kind in zip(aliases[1:], order, strict=True))
        return Page(aliases[0], tuple(aliases[1:]))

    trials = tuple(page(utterance, rated=True) for utterance in drawn)
    training = page(test.training, rated=False) if test.training else None
    return Session(training, trials, stimuli)


def alias(secret: bytes, listener: int, utterance: str, system: str) -> str:
    """A stimulus's name for one listener: without the secret, neither guessed nor compared between listeners.

    A system called 'open' cannot be confused with the open reference: lengths are part of what is hashed.
    """
    message = "".join(f"{len(part)}:{part}" for part in (str(listener), utterance, system))
    return hmac.new(secret, message.encode(), hashlib.sha256).hexdigest()[:ALIAS_LENGTH]
