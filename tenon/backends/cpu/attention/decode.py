"""Attention of few queries, as in a step of decoding: each reads the keys and values that it attends to once.

    for query:
        first, end = the columns between which its mask allows any
        weights = exp(q @ k.T - their maximum)      for keys first .. end
        out = weights @ v / the sum of weights

Keys and values are read where they lie, if their elements lie side by side, and a cache no further than it is filled.
Where masked pairs have a score, as -1e9, all columns are gone through if that might matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from llvmlite import ir

from tenon.backends.cpu.attention.forward import Forward
from tenon.backends.cpu.contraction.gemm_spec import Args
from tenon.backends.cpu.contraction.ir_helpers import (
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    const,
    element_bytes,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    minimum,
    multiply_add,
    store_vector,
    transpose,
)
from tenon.dims.symbolic_dim import Dim
from tenon.llvm.work_partition import WorkShare
from tenon.loops.affine import affine
from tenon.loops.expressions import Expr, Index, Load
from tenon.loops.traversal import walk

VECTORS_AT_A_TIME = 4   # vectors of a value that are added up at a time
NOTHING = {4: 120.0, 8: 800.0}      # of which exp(-x) is 0, by bytes of a number
Rows = Callable[[ir.Value], ir.Value]


class Single(Forward):
    """The schedule of few queries."""

    def memory(self) -> dict[str, Dim]:
        found: dict[str, Dim] = {"q": self.depth, "scores": self.x.column.extent + 2 * self.lanes, "sums": self.width,
                                 "peak": self.lanes, "total": self.lanes}
        if not self.lies_in_rows(self.x.k, self.x.depth):
            found["k"] = self.lanes * self.depth
        if not self.lies_in_rows(self.x.v, self.x.width):
            found["v"] = self.lanes * self.width
        return found

    def body(self, b: ir.IRBuilder, args: Args, share: WorkShare, parts: Mapping[str, ir.Value]) -> None:
        """Some of the queries."""
        rows = self.extent(b, args, self.x.row)
        with loop(b, *share.of(b.mul(self.extent(b, args, *self.x.batch), rows))) as (task, _):
            self.query(b, args, parts, b.udiv(task, rows), b.urem(task, rows))

    def query(self, b: ir.IRBuilder, args: Args, parts: Mapping[str, ir.Value], g: ir.Value, row: ir.Value) -> None:
        """One query."""
        self.copy(b, args, self.x.q, "row depth", g, row, ONE, parts["q"], self.x.scale)
        columns = self.extent(b, args, self.x.column)
        first, end = self.bounds(b, args, g, row, columns)
        scored = self.function("scores", [I64] * 4 + [POINTER] * 4, self.scores)
        own = [parts[name] if name in parts else parts["q"] for name in ("q", "k", "scores", "peak")]
        b.call(scored, [*args, g, row, first, end, *own])
        if self.chooses and self.x.masked not in (None, -math.inf):
            peak = b.load(parts["peak"], typ=self.element)
            least = ir.Constant(self.element, self.masked + NOTHING[element_bytes(self.element)])
            matters = b.fcmp_unordered("<", peak, least)
            first, end = b.select(matters, ZERO, first), b.select(matters, columns, end)
            with b.if_then(matters):
                b.call(scored, [*args, g, row, first, end, *own])
        summed = self.function("values", [I64] * 3 + [POINTER] * 5, self.values_of)
        b.call(summed, [*args, g, first, end, *(parts[name] if name in parts else parts["q"]
                                                for name in ("scores", "peak", "total", "v", "sums"))])
        self.finish(b, args, g, row, ONE, parts)

    def bounds(self, b: ir.IRBuilder, args: Args, g: ir.Value, row: ir.Value,
               columns: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The first column that takes part, and the one behind the last."""
        end = minimum(b, columns, b.add(row, ONE)) if self.x.is_causal else columns
        if not self.chooses:
            return ZERO, end
        end = self.sought(b, args, g, row, end, ZERO, -1)
        return self.sought(b, args, g, row, ZERO, end, 1), end

    def scores(self, b: ir.IRBuilder, args: Args, g: ir.Value, row: ir.Value, first: ir.Value, end: ir.Value,
               q: ir.Value, k: ir.Value, scores: ir.Value, peak: ir.Value) -> None:
        """The scores of columns first .. end, masked, and the largest of them."""
        none, extent = ir.Constant(self.vector, None), int(self.x.depth.extent)
        with loop(b, first, end, const(self.lanes), short=True) as (j, _):
            count = minimum(b, const(self.lanes), b.sub(end, j))
            rows, last = self.rows_of(b, args, self.x.k, "column depth", g, j, count, k), b.sub(count, ONE)
            starts = [rows(minimum(b, const(i), last)) for i in range(self.lanes)]
            with loop(b, ZERO, const(extent // self.lanes * self.lanes), const(self.lanes), [none] * self.lanes,
                      short=True) as (e, sums):
                factor = self.load(b, q, e)
                sums[:] = [multiply_add(b, self.load(b, start, e), factor, total)
                           for start, total in zip(starts, sums, strict=True)]
            if extent % self.lanes:
                e = const(extent // self.lanes * self.lanes)
                factor = self.load(b, q, e)
                sums = [multiply_add(b, self.part(b, start, e, extent), factor, total)
                        for start, total in zip(starts, sums, strict=True)]
            store_vector(b, self.added(b, transpose(b, sums)), address(b, scores, b.sub(j, first), self.element))
        count = b.sub(end, first)
        self.mask_rows(b, args, g, row, ONE, first, count, scores, 0, self.masked)
        b.store(self.largest(b, scores, count), peak)

    def values_of(self, b: ir.IRBuilder, args: Args, g: ir.Value, first: ir.Value, end: ir.Value, scores: ir.Value,
                  peak: ir.Value, total: ir.Value, v: ir.Value, sums: ir.Value) -> None:
        """Scores -> weights, their sum, and the sum of the values that they weigh."""
        largest, lowest = b.load(peak, typ=self.element), ir.Constant(self.element, float("-inf"))
        shift = b.select(b.fcmp_ordered("==", largest, lowest), ir.Constant(self.element, 0.0), largest)
        count, extent = b.sub(end, first), int(self.x.width.extent)
        b.store(self.exponentials(b, scores, count, count, shift), total)
        for start in range(0, extent, VECTORS_AT_A_TIME * self.lanes):
            places = range(start, min(extent, start + VECTORS_AT_A_TIME * self.lanes), self.lanes)
            none = [ir.Constant(self.vector, None)] * len(places)
            with loop(b, first, end, const(self.lanes), none, short=True) as (j, found):
                several = minimum(b, const(self.lanes), b.sub(end, j))
                rows = self.rows_of(b, args, self.x.v, "column width", g, j, several, v)
                with loop(b, ZERO, several, ONE, found, short=True) as (i, inner):
                    line, where = rows(i), address(b, scores, b.add(b.sub(j, first), i), self.element)
                    weight = self.splat(b, b.load(where, typ=self.element))
                    inner[:] = [multiply_add(b, self.part(b, line, const(place), extent), weight, x)
                                for place, x in zip(places, inner, strict=True)]
                found[:] = inner
            for place, x in zip(places, found, strict=True):
                self.store(b, x, sums, const(place))

    # ------------------------------------------------------------ keys and values

    def lies_in_rows(self, x: Expr, along: Index) -> bool:
        """Whether the elements along an axis lie side by side in memory, as the numbers that are computed with."""
        if not isinstance(x, Load) or x.mask is not None or x.dtype is not self.x.dtype:
            return False
        terms = affine(x.offset).terms
        others = (atom for atom in terms if atom is not along)
        return terms.get(along) == 1 and not any(along in walk(atom) for atom in others)

    def rows_of(self, b: ir.IRBuilder, args: Args, x: Expr, axes: str, g: ir.Value, first: ir.Value, count: ir.Value,
                own: ir.Value) -> Rows:
        """Where the rows from `first` on begin, by their number: in place, or in memory that they are copied to."""
        outer, inner = axes.split()
        if not self.lies_in_rows(x, getattr(self.x, inner)):
            self.copy(b, args, x, axes, g, first, count, own)
            return lambda i: address(b, own, b.mul(i, const(self.apart(inner))), self.element)
        assert isinstance(x, Load)
        return lambda i: self.at(b, args, g, **{outer: b.add(first, i), inner: ZERO}).address(x.buffer, x.offset)

    def part(self, b: ir.IRBuilder, line: ir.Value, place: ir.Constant, extent: int) -> ir.Value:
        """A vector of a row, zeros where the row has ended."""
        left, where = extent - int(place.constant), address(b, line, place, self.element)
        if left >= self.lanes:
            return load_vector(b, where, self.element, self.lanes)
        return masked_load(b, where, lanes_below(left, self.lanes), ir.Constant(self.vector, None))

    def added(self, b: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
        """The sum of vectors, in pairs."""
        while len(vectors) > 1:
            vectors = [b.fadd(x, y) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
        return vectors[0]
