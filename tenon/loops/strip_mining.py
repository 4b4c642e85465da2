"""A loop -> strips of it, one after the other: which of its iterations each iteration of the strips is (strip-mining).

    for i in range(n): ...    ->    for strip in range(-(-n // LENGTH)):
                                        for within in range(min(LENGTH, n - strip * LENGTH)): ...

What is left over may be strips of another length, as `for i in range(n // 4 * 4, n)` is of length 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.dims.symbolic_dim import Dim
from tenon.loops.affine import is_same
from tenon.records import dataclass


@dataclass(frozen=True)
class Strips:
    """The iterations `start + strip * length + within`, for so many strips and `within < length`, that the loop has."""

    start: Dim
    strips: Dim
    length: int


def is_partition(extent: Dim, pieces: Sequence[Strips]) -> bool:
    """Whether the pieces have each iteration of the loop once: each begins where the one before ends, the last at the
    end.

    Only the last strip of all may be cut.
    """
    at: Dim = 0
    for piece in pieces:
        if not is_same(piece.start, at):
            return False
        at = piece.start + piece.strips * piece.length
    last = pieces[-1]
    return is_same(at, extent) or is_same(last.strips, (extent - last.start + (last.length - 1)) // last.length)
