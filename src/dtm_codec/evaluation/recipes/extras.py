"""Columns that only our own models have: codebook utilisation, speed and NMSE (paper Tables 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...speech.utterance import Utterance
from .. import systems
from ..cache import ResultCache
from ..diagnostics import CodeUse, SelectorUse, count_codes, time_selector
from ..systems.ours import DTM
from ..systems.remembered import Remembered
from ..tables import Cell, Column
from . import Extra
from .choices import Choice

Measured = TypeVar("Measured", CodeUse, SelectorUse)

COLUMNS: dict[Extra, tuple[Column, ...]] = {
    "codes": (Column("|C|"), Column("Util.")),
    "speed": (Column("RTF", None, False), Column("Share (%)", None, False)),
    "nmse": (Column("NMSE", None, False),),
}


@dataclass(frozen=True)
class Extras:
    """Measures these columns; what was measured of a model is kept."""

    cache: ResultCache
    utterances: Sequence[Utterance]
    large: Sequence[Utterance]
    """Set to count codes on."""

    def cells(self, wanted: Sequence[Extra], choice: Choice) -> tuple[Cell, ...]:
        """One system's cells, in the order of the columns; none of a codec that is not ours."""
        system = systems.build(str(choice.system)) if choice.portrait is None else Remembered(choice.portrait)
        if not isinstance(system, DTM | Remembered):
            return ()
        return tuple(cell for extra in wanted for cell in self._cells(extra, system))

    def _cells(self, extra: Extra, system: DTM | Remembered) -> tuple[Cell, ...]:
        if extra == "codes":
            use = self._found("codes", CodeUse, count_codes, system, self.large)
            if use is None:
                return Cell(), Cell()
            return Cell(str(use.size)), Cell(f"{use.utilisation:.2f}", f"{use.used} codes in {use.tokens} tokens")
        found = self._found("selector", SelectorUse, time_selector, system, self.utterances)
        if found is None:
            return (Cell(),) * len(COLUMNS[extra])
        if extra == "speed":
            return Cell(f"{found.rtf:.4f}", value=found.rtf), Cell(f"{found.share:.2f}", value=found.share)
        return (Cell(f"{found.nmse:.4f}", value=found.nmse),)

    def _found(
        self,
        what: str,
        kind: type[Measured],
        measure: Callable[[DTM, Sequence[Utterance]], Measured],
        system: DTM | Remembered,
        utterances: Sequence[Utterance],
    ) -> Measured | None:
        """What was measured of this system before, or is now; None if it is too late for that."""
        key = " ".join([what, system.name, system.identity, *(utterance.key for utterance in utterances)])
        if isinstance(system, Remembered):
            return self.cache.find(key, kind)
        return self.cache.get(key, kind, lambda: measure(system, utterances))
