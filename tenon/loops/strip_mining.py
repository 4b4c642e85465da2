"""A loop -> strips of it, one after the other: which of its turns each turn of the strips is (strip-mining).

    for i in range(n): ...    ->    for strip in range(-(-n // LENGTH)):
                                        for within in range(min(LENGTH, n - strip * LENGTH)): ...

What is left over may be strips of another length, as `for i in range(n // 4 * 4, n)` is of length 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.dims import Dim
from tenon.loops.affine import is_same
from tenon.loops.expressions import Index, Reduce, size
from tenon.loops.traversal import parts
from tenon.records import dataclass


@dataclass(frozen=True)
class Strips:
    """The turns `start + strip * length + within`, for so many strips and `within < length`, that the loop has."""

    start: Dim
    strips: Dim
    length: int


def is_partition(extent: Dim, pieces: Sequence[Strips]) -> bool:
    """Whether the pieces have each turn of the loop once: each begins where the one before ends, the last at the end.

    Only the last strip of all may be cut.
    """
    at: Dim = 0
    for piece in pieces:
        if not is_same(piece.start, at):
            return False
        at = piece.start + piece.strips * piece.length
    last = pieces[-1]
    return is_same(at, extent) or is_same(last.strips, (extent - last.start + (last.length - 1)) // last.length)


def may_be_factored(x: Reduce, indices: Sequence[Index]) -> bool:
    """Whether x may be reduced in parts, and their results combined (`rfactor`; Suriana, Adams and Kamil 2017).

    All kinds of reductions are associative and commutative, up to roundings, and have an identity.  So any partition of
    what is reduced is legal, where that is the same for all results: loops that run to their ends, whatever the others
    do.  The results are one for each turn of the loops around, and nothing that is reduced waits for another reduction.
    """
    whole = x.extents == tuple(size(index.extent) for index in x.indices)
    return whole and x.free.issubset(indices) and not parts(x.body, Reduce)
