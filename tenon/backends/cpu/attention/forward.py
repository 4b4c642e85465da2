"""Flash attention (Dao 2022): for every block of queries all blocks of keys, with running maxima and sums.

    for block of queries:
        for block of keys that some of these queries attend to:
            for tile of rows:
                scores = q @ k.T
                weights = exp(scores - the largest so far); what was summed before is scaled accordingly
                sums += weights @ v
        out = sums / the sum of weights
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from llvmlite import ir

from tenon.backends.cpu.attention.attention_blocks import AttentionOperands, Blocks
from tenon.backends.cpu.contraction.gemm_spec import Args
from tenon.backends.cpu.contraction.ir_helpers import (
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    ceil_div,
    const,
    loop,
    maximum,
    minimum,
)
from tenon.backends.cpu.contraction.memset import fill
from tenon.backends.cpu.mathematics import FUNCTIONS
from tenon.dims.symbolic_dim import Dim
from tenon.llvm.work_partition import WorkShare
from tenon.loops.loop_ir import Attention
from tenon.types import bool_


class Forward(Blocks):
    """The schedule of attention."""

    x: Attention
    most_queries, most_keys = 256, 256       # in a block, about

    def memory(self) -> dict[str, Dim]:
        tile = self.rows * self.keys
        return {"q": self.queries * self.depth, "k": self.keys * self.depth, "panels": self.keys * self.depth,
                "v": self.keys * self.width + self.across, "scores": tile,
                "sums": self.queries * self.width + self.across, "peak": self.whole(self.queries),
                "total": self.whole(self.queries)}

    def body(self, b: ir.IRBuilder, args: Args, share: WorkShare, parts: Mapping[str, ir.Value]) -> None:
        """Some of the blocks of queries."""
        x, block = self.x, const(self.queries)
        rows = self.extent(b, args, x.row)
        blocks = ceil_div(b, rows, block)
        tasks = b.mul(self.extent(b, args, *x.batch), blocks)
        with loop(b, *share.of(tasks)) as (task, _):
            g, first = b.udiv(task, blocks), b.mul(b.urem(task, blocks), block)
            self.block(b, args, parts, g, first, minimum(b, block, b.sub(rows, first)))

    def block(self, b: ir.IRBuilder, args: Args, parts: Mapping[str, ir.Value], g: ir.Value, first: ir.Value,
              count: ir.Value) -> None:
        """One block of queries."""
        x = self.x
        self.copy(b, args, x.q, "row depth", g, first, count, parts["q"], x.scale)
        fill(b, self.element, self.lanes, parts["peak"], count, number=-math.inf)
        fill(b, self.element, self.lanes, parts["total"], count)
        end = self.end(b, args, g, first, count)
        with loop(b, ZERO, end, const(self.keys)) as (column, _):
            keys = minimum(b, const(self.keys), b.sub(end, column))
            self.copy(b, args, x.k, "column depth", g, column, keys, parts["k"])
            self.transpose_panels(b, args, self.depth, parts["k"], keys, parts["panels"])
            self.copy(b, args, x.v, "column width", g, column, keys, parts["v"])
            with loop(b, ZERO, count, const(self.rows)) as (i, _):
                self.tile(b, args, parts, g, first, i, minimum(b, const(self.rows), b.sub(count, i)), column, keys)
        self.finish(b, args, g, first, count, parts)

    def end(self, b: ir.IRBuilder, args: Args, g: ir.Value, first: ir.Value, count: ir.Value) -> ir.Value:
        """The column behind the last one that any of these queries attends to: a cache is filled up to there."""
        end = self.extent(b, args, self.x.column)
        if self.x.is_causal:
            end = minimum(b, end, b.add(first, count))
        if not self.chooses or self.masked != -math.inf:
            return end
        with loop(b, ZERO, count, ONE, [ZERO]) as (i, last):
            last[0] = self.sought(b, args, g, b.add(first, i), end, last[0], -1)
        return last[0]

    @property
    def chooses(self) -> bool:
        """Whether a mask says which columns take part."""
        return self.x.mask is not None and self.x.mask.dtype is bool_

    def sought(self, b: ir.IRBuilder, args: Args, g: ir.Value, row: ir.Value, start: ir.Value, end: ir.Value,
               step: int) -> ir.Value:
        """From column `start` on, before it if the step is -1, towards `end`: where the first is that takes part."""
        assert self.x.mask is not None
        before, head, body, done = b.block, *(b.append_basic_block(name) for name in ("seek", "seen", "sought"))
        b.branch(head)
        b.position_at_end(head)
        j = b.phi(I64)
        j.add_incoming(start, before)
        b.cbranch(b.icmp_signed("==", j, end), done, body)
        b.position_at_end(body)
        column = j if step > 0 else b.sub(j, ONE)
        taken = self.at(b, args, g, row=row, column=column).value(self.x.mask)
        j.add_incoming(b.add(j, const(step)), b.block)
        b.cbranch(taken, done, head)
        b.position_at_end(done)
        return j

    def tile(self, b: ir.IRBuilder, args: Args, parts: Mapping[str, ir.Value], g: ir.Value, first: ir.Value,
             i: ir.Value, rows: ir.Value, column: ir.Value, keys: ir.Value) -> None:
        """The rows from `i` of the block on, and a block of keys."""
        row = b.add(first, i)
        needed = self.columns_of(b, b.add(row, b.sub(rows, ONE)), column, keys)
        q = address(b, parts["q"], b.mul(i, const(self.depth)), self.element)
        sums = address(b, parts["sums"], b.mul(i, const(self.width)), self.element)
        with loop(b, ZERO, needed, const(self.across), short=True) as (j, _):
            panel = address(b, parts["panels"], b.mul(j, const(self.depth)), self.element)
            self.multiply(b, AttentionOperands(self.depth, 1, self.across), const(int(self.x.depth.extent)), q, panel,
                          address(b, parts["scores"], j, self.element), self.keys, self.vectors)
        with b.if_then(b.icmp_signed(">", needed, ZERO)):
            self.mask_rows(b, args, g, row, rows, column, needed, parts["scores"], self.keys, self.masked)
            peak, total = (address(b, parts[name], i, self.element) for name in ("peak", "total"))
            b.call(self.function("weights", [*[I64] * 5, *[POINTER] * 4], self.weights),
                   [*args, row, rows, column, keys, needed, parts["scores"], peak, total, sums])
            vectors = self.vectors_for(int(self.x.width.extent))
            with loop(b, ZERO, const(self.width), const(vectors * self.lanes), short=True) as (j, _):
                self.multiply(b, AttentionOperands(self.keys, 1, self.width), needed, parts["scores"],
                              address(b, parts["v"], j, self.element), address(b, sums, j, self.element), self.width,
                              vectors, b.icmp_signed(">", column, ZERO))

    def weights(self, b: ir.IRBuilder, args: Args, row: ir.Value, rows: ir.Value, column: ir.Value, keys: ir.Value,
                needed: ir.Value, scores: ir.Value, peak: ir.Value, total: ir.Value, sums: ir.Value) -> None:
        """Scores of some rows -> weights; what was known of the rows -> what is known now."""
        with loop(b, ZERO, rows, short=True) as (i, _):
            line = address(b, scores, b.mul(i, const(self.keys)), self.element)
            count = maximum(b, self.columns_of(b, b.add(row, i), column, keys), ZERO)
            known, old = (address(b, where, i, self.element) for where in (total, peak))
            before = b.load(old, typ=self.element)
            largest = self.larger(b, before, self.largest(b, line, count))
            none = b.fcmp_ordered("==", largest, ir.Constant(self.element, float("-inf")))
            shift = b.select(none, ir.Constant(self.element, 0.0), largest)
            found = self.exponentials(b, line, count, needed, shift)
            b.store(largest, old)
            with b.if_else(b.icmp_signed(">", column, ZERO)) as (later, first):
                with later:
                    scale = self.exp(b, b.fsub(before, shift))
                    b.store(b.fadd(b.fmul(b.load(known, typ=self.element), scale), found), known)
                    line = address(b, sums, b.mul(i, const(self.width)), self.element)
                    self.scale_line(b, line, scale)
                with first:
                    b.store(found, known)

    def scale_line(self, b: ir.IRBuilder, line: ir.Value, scale: ir.Value) -> None:
        """A row of sums by a factor, if that is not 1."""
        with b.if_then(b.fcmp_unordered("!=", scale, ir.Constant(self.element, 1.0))):
            factor = self.splat(b, scale)
            with self.vectors_of(b, ZERO, const(self.width)) as (j, _):
                self.store(b, b.fmul(self.load(b, line, j), factor), line, j)

    def largest(self, b: ir.IRBuilder, line: ir.Value, count: ir.Value) -> ir.Value:
        """The maximum of the first `count` scores; minus infinity of none."""
        lowest = self.splat(b, ir.Constant(self.element, float("-inf")))

        def step(j: ir.Value, lanes: ir.Value | None, state: list[ir.Value]) -> None:
            value = self.load(b, line, j)
            state[0] = self.larger(b, state[0], value if lanes is None else b.select(lanes, value, lowest))
        return self.reduce(b, "fmax", self.in_parts(b, count, count, [lowest], step)[0])

    def exponentials(self, b: ir.IRBuilder, line: ir.Value, count: ir.Value, needed: ir.Value,
                     shift: ir.Value) -> ir.Value:
        """Put exp(score - shift) in the place of scores, zeros behind them; gives their sum."""
        none, by = ir.Constant(self.vector, None), self.splat(b, shift)

        def step(j: ir.Value, lanes: ir.Value | None, state: list[ir.Value]) -> None:
            value = self.exp(b, b.fsub(self.load(b, line, j), by))
            value = value if lanes is None else b.select(lanes, value, none)
            self.store(b, value, line, j)
            state[0] = b.fadd(state[0], value)
        return self.reduce(b, "fadd", self.in_parts(b, count, needed, [none], step)[0])

    def finish(self, b: ir.IRBuilder, args: Args, g: ir.Value, first: ir.Value, count: ir.Value,
               parts: Mapping[str, ir.Value]) -> None:
        """Divide the sums, and store them, the logarithms and their rests; a row without pairs is 0, or nan."""
        one, none = ir.Constant(self.element, 1.0), ir.Constant(self.element, 0.0)
        if self.x.masked is None:
            without, logarithm = none, ir.Constant(self.element, float("-inf"))
        else:
            without = logarithm = ir.Constant(self.element, float("nan"))

        def write(b: ir.IRBuilder, args: Args, g: ir.Value, first: ir.Value, count: ir.Value, peaks: ir.Value,
                  totals: ir.Value, sums: ir.Value) -> None:
            with loop(b, ZERO, count, short=True) as (i, _):
                row = b.add(first, i)
                total, peak = (b.load(address(b, where, i, self.element), typ=self.element)
                               for where in (totals, peaks))
                empty = b.fcmp_ordered("==", total, none)
                factor = b.fdiv(one, total)
                with loop(b, ZERO, const(int(self.x.width.extent))) as (j, _):
                    where = address(b, sums, b.add(b.mul(i, const(self.width)), j), self.element)
                    value = b.select(empty, without, b.fmul(b.load(where, typ=self.element), factor))
                    self.stored(b, args, 0, g, value, row=row, width=j)
                count = FUNCTIONS["log"](b, total)
                found = b.fadd(peak, count)
                self.stored(b, args, 1, g, b.select(empty, logarithm, found), row=row)
                rest = b.fadd(b.fsub(peak, found), count)
                self.stored(b, args, 2, g, b.select(empty, without, rest), row=row)
        b.call(self.function("finish", [*[I64] * 3, *[POINTER] * 3], write),
               [*args, g, first, count, parts["peak"], parts["total"], parts["sums"]])
