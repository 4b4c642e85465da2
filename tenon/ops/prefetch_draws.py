"""Small draws of random numbers, with which those that follow are made: NumPy takes a hundredth of the time for each
of many.

    sequel = Sequel(make)               # make(seed, draw, draws) -> [draws, 10]
    numbers = sequel.take(seed, draw)

What a draw gives depends on the seed and the number of the draw alone, so it may be made at any time.  Rows are made
from the second draw of a kind on, for the draws that follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DRAWS = 256             # that are made at a time, first
GROWS = 4               # how many times as many the next time
MAX_NUMBERS = 1 << 15   # that are made at a time, where these are more draws than the first time
MAX_KINDS = 64          # that are remembered
MAX_SEQUEL_DISTANCE = 8  # a later draw than this many behind the last one is no sequel

Rows = tuple[int, int, Any]


class Sequel:
    """Draws of one kind, one behind the other: `make(seed, draw, 1)[0]`, for a function whose rows are those of one
    draw after another."""

    __slots__ = ("make", "rows")

    def __init__(self, make: Callable[[int, int, int], Any]):
        self.make = make
        # the seed, the number of the first draw, its numbers and the next ones
        self.rows: Rows = 0, -MAX_SEQUEL_DISTANCE, ()

    def take(self, seed: int, draw: int) -> Any:
        """The numbers of a draw, an array of their own."""
        known, first, rows = self.rows
        place = draw - first
        if known == seed and 0 <= place < len(rows):
            return rows[place, ...].copy()
        follows = known == seed and 0 <= place - len(rows) < MAX_SEQUEL_DISTANCE
        draws = self._more(rows) if follows else 1
        made = self.make(seed, draw, draws if draw + draws < 1 << 64 else 1)
        self.rows = seed, draw, made
        return made[0, ...].copy()

    def _more(self, rows: Any) -> int:
        """How many draws are made after these, of which there are some."""
        return DRAWS if len(rows) == 1 else max(DRAWS, min(GROWS * len(rows), MAX_NUMBERS // rows[0].size))


class Sequels:
    """Those of a generator's eager draws, by all that they depend on; None of what is not made along.

    They stand apart from the generator: what a capture reads of that must not change with every draw.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Sequel | None] = {}

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._known

    def find(self, key: tuple[Any, ...]) -> Sequel | None:
        """What makes such draws, where it is known."""
        return self._known.get(key)

    def note(self, key: tuple[Any, ...], sequel: Sequel | None) -> None:
        """Remember it."""
        if len(self._known) >= MAX_KINDS:
            self._known.clear()
        self._known[key] = sequel


_sequels: dict[tuple[Any, ...], Sequel] = {}    # by the kind of a draw and the seed


def ahead(kind: tuple[Any, ...], state: Any, make: Callable[[int, int, int], Any]) -> Any:
    """The numbers of a draw; `kind` says all that they depend on beside the state."""
    seed, draw = state.tolist()
    key = (*kind, seed)
    sequel = _sequels.get(key)
    if sequel is None:
        if len(_sequels) >= MAX_KINDS:
            _sequels.clear()
        _sequels[key] = sequel = Sequel(make)
    return sequel.take(seed, draw)
