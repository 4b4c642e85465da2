"""Sums that are rounded to bfloat16, with no other epilogue: whole lines by the instruction that rounds.

What it makes 0, numbers below 1e-38, sums of pairs never are.
"""
from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import PAIR_LANES, Args, GemmSpec, Index, Tile
from tenon.backends.cpu.contraction.ir_helpers import I32, ZERO, address, const, load_vector, loop, masked_store, splat

I16 = ir.IntType(16)


def store_rounded(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, batch: Index,
                  place: tuple[ir.Value, ir.Value], size: tuple[ir.Value, ir.Value], sums: ir.Value) -> None:
    """Store the sums of a tile, or of the part of it that there is, two vectors at a time."""
    (m, n), (rows, columns) = place, size
    assert spec.rounds is not None
    with loop(b, ZERO, rows, short=True) as (i, _):
        line = address(b, sums, b.mul(i, const(tile.width)), spec.element)
        target = spec.rounds(b, args, batch, b.add(m, i), n)
        for first in range(0, tile.width, 2 * PAIR_LANES):
            starts = range(first, min(first + 2 * PAIR_LANES, tile.width), PAIR_LANES)
            vectors = [load_vector(b, address(b, line, const(at), spec.element), spec.element, PAIR_LANES)
                       for at in starts]
            value = rounded(b, vectors)
            masked_store(b, value, address(b, target, const(first), I16), below(b, columns, value.type.count, first))


def rounded(b: ir.IRBuilder, vectors: Sequence[ir.Value]) -> ir.Value:
    """One vector of 16 floats, or two, as bfloat16; of what is no number the payload may change."""
    lines = ir.VectorType(I16, PAIR_LANES * len(vectors))
    if len(vectors) == 1:
        text, constraints = "vcvtneps2bf16 $1, $0", "=v,v"
    else:
        text, constraints = "vcvtne2ps2bf16 $1, $2, $0", "=v,v,v"
    return b.call(ir.InlineAsm(ir.FunctionType(lines, [x.type for x in vectors]), text, constraints), vectors)


def below(b: ir.IRBuilder, count: ir.Value, lanes: int, lane: int) -> ir.Value:
    """The mask of the lanes, the first of which has this number, that have a number below `count`."""
    numbers = ir.Constant(ir.VectorType(I32, lanes), list(range(lane, lane + lanes)))
    return b.icmp_signed("<", numbers, splat(b, b.trunc(count, I32), lanes))
