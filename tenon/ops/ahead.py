"""Small draws of random numbers, with which those that follow are made: NumPy takes a hundredth of the time for each
of many.

    numbers = ahead(("random_normal", float32, 10), state, make)       # make(seed, draw, draws) -> [draws, 10]

What a draw gives depends on the seed and the number of the draw alone, so it may be made at any time.  Rows are made
from the second draw of a kind on, for the draws that follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DRAWS = 256             # that are made at a time
MOST_KINDS = 64         # that are remembered
FAR = 8                 # a later draw than this many behind the last one is no sequel

Rows = tuple[int, Any]
NOTHING: Rows = -FAR, ()
_rows: dict[tuple[Any, ...], Rows] = {}     # kind of a draw -> (the number of the first, its numbers and the next ones)


def ahead(kind: tuple[Any, ...], state: Any, make: Callable[[int, int, int], Any]) -> Any:
    """The numbers of a draw: `make(seed, draw, 1)[0]`, for a function whose rows are those of one draw after another.

    `kind` says all that they depend on beside the state.
    """
    seed, draw = state.tolist()
    key = (*kind, seed)
    first, rows = _rows.get(key, NOTHING)
    if first <= draw < first + len(rows):
        return rows[draw - first].copy()
    follows = 0 <= draw - first - len(rows) < FAR and draw + DRAWS < 1 << 64
    made = make(seed, draw, DRAWS if follows else 1)
    if key not in _rows and len(_rows) >= MOST_KINDS:
        _rows.clear()
    _rows[key] = draw, made
    return made[0].copy()
