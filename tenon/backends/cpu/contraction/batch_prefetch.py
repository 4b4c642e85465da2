"""Prefetches in a batch of small products: while one is computed, the operands of the next are fetched.

At every iteration of its loop a tile asks for lines of the cache, a few of its rows of left, and of its share of a
panel of right, so that those of a chunk of depth, as long as such a line, are asked for in the iterations of a chunk.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Args, GemmSpec, Operand, Tile
from tenon.backends.cpu.contraction.ir_helpers import (
    ONE,
    ZERO,
    const,
    element_bytes,
    minimum,
    prefetch,
    product,
    unravel,
)

BYTE = ir.IntType(8)


class PrefetchLines(NamedTuple):
    """Some that are asked for at an iteration: bytes from iteration to iteration, and from chunk to chunk."""
    starts: list[ir.Value]
    iteration: int
    chunk: int


class Following:
    """The lines that the tile of `height` rows at row m, column n asks for; an iteration of its loop is so many
    steps."""

    def __init__(self, b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, flat: ir.Value, m: ir.Value,
                 n: ir.Value, height: int, steps: int) -> None:
        self.b, self.spec, self.args, self.steps = b, spec, args, steps
        self.lanes, self.size, self.iterations = tile.lanes, element_bytes(spec.element), max(tile.lanes // steps, 1)
        sizes = [size(b, args) for size in spec.batch]
        self.batch = unravel(b, minimum(b, b.add(flat, ONE), b.sub(product(b, sizes), ONE)), sizes)
        share = b.udiv(m, const(tile.rows))             # of a panel: tiles at other columns fetch other panels
        by_depth = spec.right.contiguous == "depth"
        vector = minimum(b, share, const(tile.vectors - 1))
        column = b.add(n, b.mul(share, const(self.iterations)) if by_depth else b.mul(vector, const(tile.lanes)))
        self.lines = [self.of(spec.left, m, height), self.of(spec.right, column, 1)]

    def of(self, x: Operand, first: ir.Value, count: int) -> PrefetchLines:
        """Those of `count` rows of left, or columns of right, if they lie along depth; else of those that lie beside
        the first."""
        start, apart = self.start(x, first), (x.apart or 0) * self.size
        if x.contiguous == "depth":
            starts = [self.behind(start, i * apart * self.iterations) for i in range(-(-count // self.iterations))]
            return PrefetchLines(starts, apart, self.lanes * self.size)
        return PrefetchLines([self.behind(start, i * apart) for i in range(self.steps)], apart * self.steps,
                             apart * self.lanes)

    def behind(self, start: ir.Value, offset: int) -> ir.Value:
        """The address so many bytes further on."""
        return self.b.gep(start, [const(offset)], source_etype=BYTE)

    def start(self, x: Operand, first: ir.Value) -> ir.Value:
        """Where a row of left, or a column of right, begins; beyond the last one that does."""
        b, axis = self.b, self.spec.rows if x is self.spec.left else self.spec.columns
        sizes = [size(b, self.args) for size in axis]
        outer = unravel(b, minimum(b, first, b.sub(product(b, sizes), ONE)), sizes) if sizes else ()
        assert x.pointer is not None
        return x.pointer(b, self.args, self.batch, outer, (ZERO,) * len(self.spec.depth))

    def fetch(self, k: ir.Value) -> None:
        """Ask for the lines of the iteration that begins with step k."""
        b = self.b
        iteration = b.udiv(k, const(self.steps))
        chunk, inside = b.udiv(iteration, const(self.iterations)), b.urem(iteration, const(self.iterations))
        for lines in self.lines:
            offset = b.add(b.mul(inside, const(lines.iteration)), b.mul(chunk, const(lines.chunk)))
            for start in lines.starts:
                prefetch(b, b.gep(start, [offset], source_etype=BYTE), 2)
