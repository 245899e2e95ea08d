"""What each listener of an A/B or A/B/X test gets: pages of two systems, sides and X drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

from ...ratings import REFERENCE
from .prepared import ListeningTest
from .session import Stimulus, alias


@dataclass(frozen=True)
class Comparison:
    """What a page asks, for the server alone."""

    utterance: str
    pair: tuple[str, ...]
    """As the test has it."""
    a: str
    b: str
    x: str
    """Empty in A/B."""
    counted: bool
    """False for the training page."""


@dataclass(frozen=True)
class ChoicePage:
    """What a browser learns of a page: names that tell nothing."""

    name: str
    sounds: tuple[str, ...]
    """A, B and, in A/B/X, X."""


@dataclass(frozen=True)
class ChoiceSession:
    training: ChoicePage | None
    trials: tuple[ChoicePage, ...]
    stimuli: dict[str, Stimulus]
    """By alias."""
    comparisons: dict[str, Comparison]
    """By name of the page."""
    volume: str
    """The sound to set the volume by: a reference."""


def make_choice_session(test: ListeningTest, secret: bytes, listener: int) -> ChoiceSession:
    """Draw the test of listener number `listener` (1, 2, ...)."""
    rng = random.Random(f"{test.seed}/{listener}")
    stimuli: dict[str, Stimulus] = {}
    comparisons: dict[str, Comparison] = {}

    def page(utterance: str, pair: tuple[str, ...], counted: bool) -> ChoicePage:
        a, b = rng.sample(pair, 2)
        x = rng.choice(pair) if test.method == "abx" else ""
        name = alias(secret, listener, utterance, f"page {pair}")
        comparisons[name] = Comparison(utterance, pair, a, b, x, counted)
        sounds = []
        for role, system in (("a", a), ("b", b), *([("x", x)] if x else [])):
            sounds.append(alias(secret, listener, utterance, f"{role} {pair} {system}"))
            stimuli[sounds[-1]] = Stimulus(utterance, system, rated=False)
        return ChoicePage(name, tuple(sounds))

    drawn = list(islice(_in_turns(test, rng), test.trials_per_listener))
    rng.shuffle(drawn)
    trials = tuple(page(utterance, pair, counted=True) for utterance, pair in drawn)
    training = page(test.training, rng.choice(test.pairs), counted=False) if test.training else None
    heard_first = test.training or drawn[0][0]
    volume = alias(secret, listener, heard_first, REFERENCE, is_open=True)
    stimuli[volume] = Stimulus(heard_first, REFERENCE, rated=False)
    return ChoiceSession(training, trials, stimuli, comparisons, volume)


def _in_turns(test: ListeningTest, rng: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    """All utterances by all pairs, in turns of the pairs: wherever it is cut, each pair has its share."""
    columns = [
        [(utterance, pair) for utterance in rng.sample(test.utterances, len(test.utterances))]
        for pair in rng.sample(test.pairs, len(test.pairs))
    ]
    return (page for page in chain.from_iterable(zip_longest(*columns)) if page is not None)
