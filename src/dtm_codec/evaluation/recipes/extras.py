"""Columns that only our own models have: codebook utilisation, speed and NMSE (paper Tables 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...speech.utterance import Utterance
from .. import systems
from ..cache import ResultCache
from ..diagnostics import CodeUse, SelectorUse, count_codes, time_selector
from ..systems.ours import DTM
from ..tables import Cell, Column
from . import Extra

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

    def cells(self, wanted: Sequence[Extra], name: str) -> tuple[Cell, ...]:
        """One system's cells, in the order of the columns; none of a codec that is not ours."""
        system = systems.build(name)
        if not isinstance(system, DTM):
            return ()
        return tuple(cell for extra in wanted for cell in self._cells(extra, system))

    def _cells(self, extra: Extra, system: DTM) -> tuple[Cell, ...]:
        if extra == "codes":
            key = _key("codes", system, self.large)
            use = self.cache.get(key, CodeUse, lambda: count_codes(system, self.large))
            return Cell(str(use.size)), Cell(f"{use.utilisation:.2f}", f"{use.used} codes in {use.tokens} tokens")
        key = _key("selector", system, self.utterances)
        found = self.cache.get(key, SelectorUse, lambda: time_selector(system, self.utterances))
        if extra == "speed":
            return Cell(f"{found.rtf:.4f}", value=found.rtf), Cell(f"{found.share:.2f}", value=found.share)
        return (Cell(f"{found.nmse:.4f}", value=found.nmse),)


def _key(what: str, system: DTM, utterances: Sequence[Utterance]) -> str:
    return " ".join([what, system.name, system.identity, *(utterance.key for utterance in utterances)])
