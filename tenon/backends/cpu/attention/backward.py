"""The gradient of attention: for every block of keys all blocks of queries, whose weights are computed again.

    for block of keys:
        for block of queries that attend to some of these keys:
            for tile of rows:
                weights = exp(q @ k.T - total)
                slopes = weights * (g @ v.T - along)
                dq += slopes @ k
            dv += weights.T @ g;  dk += slopes.T @ q
        store dk, dv
    store dq

A thread does all of a head, so every sum is made in one order.  (Dao et al., 2022, have the order of the loops.)
"""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from tenon.backends.cpu.attention.attention_blocks import AttentionOperands, Blocks
from tenon.backends.cpu.contraction.gemm_spec import Args
from tenon.backends.cpu.contraction.ir_helpers import (
    I1,
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    const,
    loop,
    maximum,
    minimum,
)
from tenon.dims.symbolic_dim import Dim
from tenon.llvm.work_partition import WorkShare
from tenon.loops.loop_ir import AttentionGradient
from tenon.types import bool_

Parts = Mapping[str, ir.Value]


class Gradient(Blocks):
    """The schedule of attention's gradient."""

    x: AttentionGradient
    most_queries, most_keys = 128, 256       # in a block, about

    @property
    def apart_scores(self) -> int:
        """Elements between rows of weights and slopes, which are read as columns in whole tiles too."""
        return self.whole(self.keys + self.rows)

    def memory(self) -> dict[str, Dim]:
        rows, keys = self.x.row.extent + self.rows, self.keys + self.rows
        scores = (self.queries + self.rows) * self.apart_scores
        return {"q": rows * self.depth, "g": rows * self.width, "dq": rows * self.depth, "along": rows, "total": rows,
                "k": keys * self.depth, "v": keys * self.width, "k panels": keys * self.depth,
                "v panels": keys * self.width, "dk": keys * self.depth, "dv": keys * self.width,
                "weights": scores, "slopes": scores}

    def body(self, b: ir.IRBuilder, args: Args, share: WorkShare, parts: Parts) -> None:
        """Some of the heads."""
        with loop(b, *share.of(self.extent(b, args, *self.x.batch))) as (g, _):
            self.head(b, args, g, parts)

    def head(self, b: ir.IRBuilder, args: Args, g: ir.Value, parts: Parts) -> None:
        """All of one head."""
        x = self.x
        rows, columns = self.extent(b, args, x.row), self.extent(b, args, x.column)
        self.copy(b, args, x.q, "row depth", g, ZERO, rows, parts["q"], x.scale)
        self.copy(b, args, x.g, "row width", g, ZERO, rows, parts["g"])
        self.copy_sums(b, args, g, rows, parts)
        self.clear(b, parts["dq"], b.mul(rows, const(self.depth)))
        with loop(b, ZERO, columns, const(self.keys)) as (column, _):
            keys = minimum(b, const(self.keys), b.sub(columns, column))
            self.keys_block(b, args, g, column, keys, rows, parts)
        self.store_rows(b, args, 0, "row depth", g, ZERO, rows, parts["dq"], x.scale)

    def copy_sums(self, b: ir.IRBuilder, args: Args, g: ir.Value, rows: ir.Value, parts: Parts) -> None:
        """What is known of rows; a row in which everything is masked has weights exp(-inf - 0)."""
        def write(b: ir.IRBuilder, args: Args, g: ir.Value, rows: ir.Value, alongs: ir.Value, totals: ir.Value) -> None:
            with loop(b, ZERO, rows) as (i, _):
                values = self.at(b, args, g, row=i)
                along, total = values.value(self.x.along), values.value(self.x.total)
                none = b.fcmp_ordered("==", total, ir.Constant(self.element, float("-inf")))
                b.store(along, address(b, alongs, i, self.element))
                b.store(b.select(none, ir.Constant(self.element, 0.0), total), address(b, totals, i, self.element))
        b.call(self.function("sums", [I64, I64, POINTER, POINTER], write),
               [*args, g, rows, parts["along"], parts["total"]])

    def keys_block(self, b: ir.IRBuilder, args: Args, g: ir.Value, column: ir.Value, keys: ir.Value, rows: ir.Value,
                   parts: Parts) -> None:
        """One block of keys and values."""
        x = self.x
        self.copy(b, args, x.k, "column depth", g, column, keys, parts["k"])
        self.copy(b, args, x.v, "column width", g, column, keys, parts["v"])
        self.transpose_panels(b, args, self.depth, parts["k"], keys, parts["k panels"])
        self.transpose_panels(b, args, self.width, parts["v"], keys, parts["v panels"])
        self.clear(b, parts["dk"], const((self.keys + self.rows) * self.depth))
        self.clear(b, parts["dv"], const((self.keys + self.rows) * self.width))
        block = const(self.queries)
        start = b.mul(b.udiv(column, block), block) if x.is_causal else ZERO
        with loop(b, start, rows, block) as (first, _):
            count = minimum(b, block, b.sub(rows, first))
            with loop(b, ZERO, count, const(self.rows)) as (i, _):
                self.tile(b, args, g, first, i, minimum(b, const(self.rows), b.sub(count, i)), column, keys, parts)
            with loop(b, ZERO, keys, const(self.rows)) as (j, _):
                self.sum_columns(b, first, count, column, j, parts)
        self.store_rows(b, args, 1, "column depth", g, column, keys, parts["dk"])
        self.store_rows(b, args, 2, "column width", g, column, keys, parts["dv"])

    def tile(self, b: ir.IRBuilder, args: Args, g: ir.Value, first: ir.Value, i: ir.Value, rows: ir.Value,
             column: ir.Value, keys: ir.Value, parts: Parts) -> None:
        """Weights and slopes of the rows from `i` of a block of queries on, and what they add to dq."""
        row, apart = b.add(first, i), self.apart_scores
        needed = maximum(b, self.columns_of(b, b.add(row, b.sub(rows, ONE)), column, keys), ZERO)
        weights, slopes = (address(b, parts[name], b.mul(i, const(apart)), self.element)
                           for name in ("weights", "slopes"))
        factors = (("q", "k panels", self.depth, self.x.depth, weights),
                   ("g", "v panels", self.width, self.x.width, slopes))
        for left, right, size, axis, scores in factors:
            start = address(b, parts[left], b.mul(row, const(size)), self.element)
            with loop(b, ZERO, needed, const(self.across), short=True) as (j, _):
                panel = address(b, parts[right], b.mul(j, const(size)), self.element)
                self.multiply(b, AttentionOperands(size, 1, self.across), const(int(axis.extent)), start, panel,
                              address(b, scores, j, self.element), apart, self.vectors)
        self.mask_rows(b, args, g, row, rows, column, needed, weights, apart, self.masked)
        along, total = (address(b, parts[name], row, self.element) for name in ("along", "total"))
        b.call(self.function("slopes", [*[I64] * 4, *[POINTER] * 4], self.slopes),
               [*args, row, rows, column, keys, weights, slopes, along, total])
        if self.x.masked is not None and self.x.mask is not None and self.x.mask.dtype is bool_:
            self.mask_rows(b, args, g, row, rows, column, needed, slopes, apart, 0.0)
        dq = address(b, parts["dq"], b.mul(row, const(self.depth)), self.element)
        with b.if_then(b.icmp_signed(">", needed, ZERO)):
            self.add_product(b, AttentionOperands(apart, 1, self.depth), needed, slopes, parts["k"], dq, "depth")

    def add_product(self, b: ir.IRBuilder, factors: AttentionOperands, depth: ir.Value, left: ir.Value, right: ir.Value,
                    result: ir.Value, axis: str) -> None:
        """Add a product to rows of a result with as many columns as the axis says."""
        vectors = self.vectors_for(int(getattr(self.x, axis).extent))
        with loop(b, ZERO, const(self.apart(axis)), const(vectors * self.lanes), short=True) as (j, _):
            self.multiply(b, factors, depth, left, address(b, right, j, self.element),
                          address(b, result, j, self.element), self.apart(axis), vectors, ir.Constant(I1, 1))

    def slopes(self, b: ir.IRBuilder, args: Args, row: ir.Value, rows: ir.Value, column: ir.Value, keys: ir.Value,
               weights: ir.Value, slopes: ir.Value, alongs: ir.Value, totals: ir.Value) -> None:
        """Scores -> weights, gradients of weights -> gradients of scores; zeros as far behind them as a tile reads."""
        none = ir.Constant(self.vector, None)
        with loop(b, ZERO, rows, short=True) as (i, _):
            place = b.mul(i, const(self.apart_scores))
            weight_line, slope_line = (address(b, where, place, self.element) for where in (weights, slopes))
            along, total = (self.splat(b, b.load(address(b, where, i, self.element), typ=self.element))
                            for where in (alongs, totals))
            count = maximum(b, self.columns_of(b, b.add(row, i), column, keys), ZERO)
            end = minimum(b, b.add(count, const(self.rows)), const(self.apart_scores))

            def step(j: ir.Value, lanes: ir.Value | None, state: list[ir.Value]) -> None:
                weight = self.exp(b, b.fsub(self.load(b, weight_line, j), total))
                slope = b.fmul(weight, b.fsub(self.load(b, slope_line, j), along))
                self.store(b, weight if lanes is None else b.select(lanes, weight, none), weight_line, j)
                self.store(b, slope if lanes is None else b.select(lanes, slope, none), slope_line, j)
            self.in_parts(b, count, end, [], step)

    def sum_columns(self, b: ir.IRBuilder, first: ir.Value, count: ir.Value, column: ir.Value, j: ir.Value,
                    parts: Parts) -> None:
        """What a block of queries adds to dv and dk, a tile of keys from `j` of the block on."""
        start = maximum(b, b.sub(b.add(column, j), first), ZERO) if self.x.is_causal else ZERO
        with b.if_then(b.icmp_signed("<", start, count)):
            place, row = b.add(b.mul(start, const(self.apart_scores)), j), b.add(first, start)
            for scores, right, result, axis in (("weights", "g", "dv", "width"), ("slopes", "q", "dk", "depth")):
                size = self.apart(axis)
                self.add_product(b, AttentionOperands(1, self.apart_scores, size), b.sub(count, start),
                                 address(b, parts[scores], place, self.element),
                                 address(b, parts[right], b.mul(row, const(size)), self.element),
                                 address(b, parts[result], b.mul(j, const(size)), self.element), axis)
