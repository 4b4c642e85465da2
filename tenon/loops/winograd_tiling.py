"""Windows along one axis, two at a time -> pieces of three taps or fewer, which take one multiplication more than taps.

    taps 0 1 2 3 4, one step apart      pieces 0 1 2 and 3 4        4 + 3 multiplications for what takes 2 * 5
    taps 0 1 2, two steps apart         pieces 0 2 and 1            3 + 2 for what takes 2 * 3

A piece's taps are as far apart as the windows, so that both windows meet its elements one after the other.  Longer
pieces would save more, and need coefficients that lose digits.
"""

from __future__ import annotations

from tenon.records import dataclass

MAX_PIECE_TAPS = 3      # taps of a piece
TILE_WINDOWS = 2        # windows of a tile


@dataclass(frozen=True)
class Tiling:
    """An axis with so many taps, `gap` elements apart, windows `step` apart; one of both is 1.

    The windows of a tile are neighbours, or `gap` apart: then tiles stand inside one another.

    >>> five = Tiling(taps=5, step=1, gap=1)
    >>> five.pieces, five.frequencies, five.side
    ((range(0, 3), range(3, 5)), 7, 6)
    """

    taps: int
    step: int
    gap: int

    @property
    def pieces(self) -> tuple[range, ...]:
        """Taps that are multiplied together."""
        found = []
        for first in range(min(self.step, self.taps)):
            taps = range(first, self.taps, self.step)
            found += [taps[start:start + MAX_PIECE_TAPS] for start in range(0, len(taps), MAX_PIECE_TAPS)]
        return tuple(found)

    @property
    def frequencies(self) -> int:
        """Multiplications of a tile."""
        return sum(len(piece) + TILE_WINDOWS - 1 for piece in self.pieces)

    @property
    def side(self) -> int:
        """Elements that a tile covers."""
        return self.taps + self.step * (TILE_WINDOWS - 1)

    def tiles(self, places: int) -> int:
        """How many tiles have so many places, or a few more."""
        return -(-places // (TILE_WINDOWS * self.gap)) * self.gap

    def covered(self, tiles: int) -> int:
        """Elements that so many tiles cover, with those between."""
        return self.step * (TILE_WINDOWS * tiles - 1) + self.gap * (self.taps - 1) + 1
