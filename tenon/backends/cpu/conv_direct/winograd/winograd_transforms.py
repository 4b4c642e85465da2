"""Winograd's F(2x2, 3x3): tiles of 2 x 2 windows of 3 x 3 taps, with 16 multiplications instead of 36; and its kin.

    y = A' ((G w G') * (B' d B)) A          d: the 4 x 4 elements that a tile covers, w: the taps, y: the 2 x 2 sums

What is multiplied is summed over channels first, so it is a product of matrices for each of the 16 frequencies.  The
gradient of w is G' ((A y A') * (B' d B)) G, summed over tiles.  All coefficients are 0, 1, -1 and 1/2, and a tile adds
up 4 numbers at most each way, so the result is as close as that of 9 times as many products added up in a row.
Windows of dilation d have tiles of elements that are d apart, d of which stand inside one another along an axis.
Other sizes and steps are cut into pieces, whose transforms stand side by side (`tenon.loops.winograd_tiling`).

Lavin, Gray: Fast algorithms for convolutional neural networks, 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from llvmlite import ir

from tenon.loops.winograd_tiling import Tiling

SQUARE = Tiling(3, 1, 1), Tiling(3, 1, 1)
Line = list[ir.Value]
Tilings = tuple[Tiling, Tiling]         # down and across
Transform = Callable[[ir.IRBuilder, Tiling, Sequence[ir.Value]], Line]


def of_elements(b: ir.IRBuilder, tiling: Tiling, d: Sequence[ir.Value]) -> Line:
    """B' d: the elements that a tile covers, piece by piece."""
    found: Line = []
    for taps in tiling.pieces:
        match [d[taps[0] + k * tiling.step] for k in range(len(taps) + 1)]:
            case [p, q, r, s]:
                found += [b.fsub(p, r), b.fadd(q, r), b.fsub(r, q), b.fsub(q, s)]
            case [p, q, r]:
                found += [b.fsub(p, q), q, b.fsub(q, r)]
            case pair:
                found += pair
    return found


def of_taps(b: ir.IRBuilder, tiling: Tiling, w: Sequence[ir.Value]) -> Line:
    """G w."""
    found: Line = []
    for taps in tiling.pieces:
        match [w[k] for k in taps]:
            case [p, q, r]:
                half, outer = _half(p.type), b.fadd(p, r)
                found += [p, b.fmul(b.fadd(outer, q), half), b.fmul(b.fsub(outer, q), half), r]
            case [p, q]:
                found += [p, b.fadd(p, q), q]
            case [p]:
                found += [p, p]
    return found


def to_sums(b: ir.IRBuilder, tiling: Tiling, m: Sequence[ir.Value]) -> Line:
    """A' m: the sums of two windows."""
    found: list[Line] = []
    for part in _parts(tiling, m):
        match part:
            case [p, q, r, s]:
                found.append([b.fadd(b.fadd(p, q), r), b.fsub(b.fsub(q, r), s)])
            case [p, q, r]:
                found.append([b.fadd(p, q), b.fsub(q, r)])
            case pair:
                found.append(list(pair))
    return [reduce(b.fadd, sums) for sums in zip(*found, strict=True)]


def of_sums(b: ir.IRBuilder, tiling: Tiling, y: Sequence[ir.Value]) -> Line:
    """A y: what two places have."""
    (p, q), found = y, list[ir.Value]()
    both, difference, negative = b.fadd(p, q), b.fsub(p, q), b.fneg(q)
    for taps in tiling.pieces:
        found += {1: [p, q], 2: [p, both, negative], 3: [p, both, difference, negative]}[len(taps)]
    return found


def to_taps(b: ir.IRBuilder, tiling: Tiling, m: Sequence[ir.Value]) -> Line:
    """G' m: the sums of all taps."""
    found: dict[int, ir.Value] = {}
    for taps, part in zip(tiling.pieces, _parts(tiling, m), strict=True):
        match part:
            case [p, q, r, s]:
                half = _half(p.type)
                both, difference = b.fmul(b.fadd(q, r), half), b.fmul(b.fsub(q, r), half)
                sums = [b.fadd(p, both), difference, b.fadd(both, s)]
            case [p, q, r]:
                sums = [b.fadd(p, q), b.fadd(q, r)]
            case [p, q]:
                sums = [b.fadd(p, q)]
        found.update(zip(taps, sums, strict=True))
    return [found[k] for k in range(tiling.taps)]


def _parts(tiling: Tiling, m: Sequence[ir.Value]) -> list[Sequence[ir.Value]]:
    """The numbers of each piece."""
    found, first = list[Sequence[ir.Value]](), 0
    for taps in tiling.pieces:
        found.append(m[first:first + len(taps) + 1])
        first += len(taps) + 1
    return found


def _half(kind: ir.Type) -> ir.Constant:
    """1/2, in every lane of a vector."""
    lanes = [ir.Constant(kind.element, 0.5)] * kind.count if isinstance(kind, ir.VectorType) else 0.5
    return ir.Constant(kind, lanes)


def both_ways(b: ir.IRBuilder, transform: Transform, tilings: Tilings, square: Sequence[Sequence[ir.Value]]
              ) -> list[Line]:
    """A transform of all columns, then of all rows."""
    columns = [transform(b, tilings[0], column) for column in zip(*square, strict=True)]
    return [transform(b, tilings[1], row) for row in zip(*columns, strict=True)]
