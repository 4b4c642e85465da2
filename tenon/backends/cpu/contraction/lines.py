"""Lines of an operand, read where they are by vectors, and added to sums that stay in the first cache.

A line is a run of right's columns for one step of depth, or of left's rows.  Of right, a line is read once for several
rows; of left, for one column.
"""

from __future__ import annotations

from typing import Literal

from llvmlite import ir

from .dots import Bounds
from .emit import (
    I32,
    ZERO,
    address,
    between,
    const,
    element_bytes,
    load_vector,
    loop,
    masked_load,
    minimum,
    multiply_add,
    product,
    splat,
    store_vector,
    unravel,
    zero,
)
from .spec import Args, Contraction, Index, Tile, element_of

LINE_VECTORS = 256      # of sums are kept in the first cache
LINES = 8               # are added to them at once: so many streams a processor follows, and reads faster than one;
FACTORS = 16            # fewer for several rows, each of which has a factor for every line in a register
TOGETHER = 4            # rows that a line of right is read for at a time, with 32 registers
Side = Literal["left", "right"]


def _rows_together(spec: Contraction, tile: Tile) -> int:
    """Rows that a line of right is read for at a time; their factors stay in registers."""
    most = TOGETHER if tile.lanes * element_bytes(spec.element) > 32 else TOGETHER // 2
    return min(spec.known[0] or 1, most)


def reads_lines(spec: Contraction, side: Side) -> bool:
    """Whether right's columns (left's rows) are one run of memory, so that a vector of them can be read where it is."""
    operand, components = (spec.right, spec.columns) if side == "right" else (spec.left, spec.rows)
    plain = operand.pointer is not None and operand.inside is None and operand.step == 1
    return (plain and operand.contiguous == "outer" and (operand.flat or len(components) == 1)
            and (side == "left" or spec.store_run is None))


class Lines:
    """Sums along the lines of one side or the other."""

    def __init__(self, b: ir.IRBuilder, spec: Contraction, tile: Tile, args: Args, g: Index, rows: list[ir.Value],
                 columns: list[ir.Value], depth: list[ir.Value]) -> None:
        self.b, self.spec, self.lanes, self.args, self.g = b, spec, tile.lanes, args, g
        self.rows, self.columns, self.depth = rows, columns, depth
        self.vector, self.together = ir.VectorType(spec.element, tile.lanes), _rows_together(spec, tile)
        self.longest = LINE_VECTORS // self.together        # vectors of a strip
        self.strip = b.alloca(self.vector, LINE_VECTORS)

    def emit(self, side: Side, across: Bounds, along: Bounds) -> None:
        """Strips along columns (right) or rows (left)."""
        b, step = self.b, const(self.longest * self.lanes)
        several = self.together if side == "right" else 1
        whole = b.sub(across[1], b.urem(b.sub(across[1], across[0]), const(several)))
        for count, bounds in {1: (whole, across[1]), several: (across[0], whole)}.items():
            with loop(b, *bounds, const(count)) as (i, _), loop(b, *along, step) as (j, _):
                m, n = (i, j) if side == "right" else (j, i)
                _Strip(self, side, m, n, minimum(b, step, b.sub(along[1], j)), count).emit()


class _Strip:
    """The sums of `count` rows from `m` by `length` columns from `n`; of left's lines, `length` rows by `count`.

    Those of a row lie one after the other, those of the next row `longest` vectors behind.
    """

    def __init__(self, lines: Lines, side: Side, m: ir.Value, n: ir.Value, length: ir.Value, count: int) -> None:
        self.lines, self.b, self.spec, self.lanes = lines, lines.b, lines.spec, lines.lanes
        self.side, self.m, self.n, self.length, self.count = side, m, n, length, count
        b, spec = self.b, self.spec
        self.near, far, near_at, far_at, near_sizes, far_sizes = \
            (spec.left, spec.right, m, n, lines.rows, lines.columns) if side == "right" else \
            (spec.right, spec.left, n, m, lines.columns, lines.rows)
        assert far.pointer is not None
        self.pointer, self.far_index = far.pointer, unravel(b, far_at, far_sizes)
        self.near_indices = [unravel(b, b.add(near_at, const(i)), near_sizes) for i in range(count)]
        self.whole_vectors = b.and_(length, const(-self.lanes))
        self.rest = b.sub(length, self.whole_vectors)

    def emit(self) -> None:
        b, lanes = self.b, const(self.lanes)
        with loop(b, ZERO, self.length, lanes) as (j, _):
            for i in range(self.count):
                store_vector(b, zero(self.lines.vector), self.place(i, j))
        at_once = min(LINES, FACTORS // self.count)
        whole = b.and_(product(b, self.lines.depth), const(-at_once))
        with loop(b, ZERO, whole, const(at_once)) as (k, _):
            self.add_lines(k, at_once)
        with loop(b, whole, product(b, self.lines.depth)) as (k, _):
            self.add_lines(k, 1)
        self.store()

    def place(self, i: int, j: ir.Value) -> ir.Value:
        """Where sum j of row i is kept."""
        behind = const(i * self.lines.longest * self.lanes)
        return address(self.b, self.lines.strip, self.b.add(j, behind), self.spec.element)

    def add_lines(self, first: ir.Value, count: int) -> None:
        """The products of `count` steps of depth."""
        b, spec, args, g = self.b, self.spec, self.lines.args, self.lines.g
        steps = [unravel(b, b.add(first, const(i)), self.lines.depth) for i in range(count)]
        factors = [[splat(b, element_of(b, spec, self.near, args, g, index, k), self.lanes) for k in steps]
                   for index in self.near_indices]
        starts = [self.pointer(b, args, g, self.far_index, k) for k in steps]
        with loop(b, ZERO, self.whole_vectors, const(self.lanes)) as (j, _):
            self.add_vectors(factors, starts, j, None)
        with b.if_then(b.icmp_signed(">", self.rest, ZERO)):
            mask = between(b, I32(0), b.trunc(self.rest, I32), self.lanes)
            self.add_vectors(factors, starts, self.whole_vectors, mask)

    def add_vectors(self, factors: list[list[ir.Value]], starts: list[ir.Value], j: ir.Value,
                    mask: ir.Value | None) -> None:
        """The vector of every line at place j, by the factors of every row."""
        b, element = self.b, self.spec.element
        places = [address(b, start, j, element) for start in starts]
        others = [load_vector(b, place, element, self.lanes) if mask is None
                  else masked_load(b, place, mask, zero(self.lines.vector)) for place in places]
        for i, row_factors in enumerate(factors):
            total = load_vector(b, self.place(i, j), element, self.lanes)
            for factor, other in zip(row_factors, others, strict=True):
                total = multiply_add(b, factor, other, total)
            store_vector(b, total, self.place(i, j))

    def store(self) -> None:
        """Hand the sums over: vectors of columns, the rest and rows one by one."""
        b, store, args, g = self.b, self.spec.store, self.lines.args, self.lines.g
        if self.side == "right":
            with loop(b, ZERO, self.whole_vectors, const(self.lanes)) as (j, _):
                for i in range(self.count):
                    total = load_vector(b, self.place(i, j), self.spec.element, self.lanes)
                    store(b, args, g, b.add(self.m, const(i)), b.add(self.n, j), total, self.lanes)
        first = self.whole_vectors if self.side == "right" else ZERO
        with loop(b, first, self.length, short=True) as (step, _):
            for i in range(self.count):
                one = b.load(self.place(i, step), typ=self.spec.element)
                row, column = (const(i), step) if self.side == "right" else (step, const(i))
                store(b, args, g, b.add(self.m, row), b.add(self.n, column), one, 1)
