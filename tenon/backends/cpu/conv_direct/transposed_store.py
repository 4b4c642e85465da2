"""Sums with filters side by side -> rows of places for each filter (NHWC to NCHW), and the epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import ONE, ZERO, address, const, loop, minimum
from tenon.backends.cpu.contraction.transpose_registers import addresses, to_lines
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.conv_direct.work_share import Task
from tenon.backends.cpu.epilogue_patterns import joined, only_stored
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import POINTER, register
from tenon.llvm import shared_functions
from tenon.locks import cached_property
from tenon.loops.loop_ir import Contraction
from tenon.loops.window_access import Axis, Windows, count


class TransposedStore:
    """Turns sums of a vector of filters in squares: to where they belong, or to where they wait for the epilogue.

    The rows of a plane have `kept` sums, of which the first are its places; `most` results of a filter may wait at
    `waiting`.
    """

    def __init__(self, task: Task, statement: Contraction, windows: Windows, filters: Axis, lanes: int,
                 waiting: ir.Value, most: int, kept: int) -> None:
        self.task, self.values, self.b, self.statement = task, task.values, task.b, statement
        (self.down, self.across), self.outside, self.filters = windows.slides, windows.outside, filters
        self.lanes, self.waiting, self.most, self.kept = lanes, waiting, most, kept
        self.element, self.slots = register(statement.sum.dtype), addresses(task.b, lanes)
        self.store = only_stored(statement.epilogue, statement.sum, self.across.place)

    @cached_property
    def is_flat(self) -> bool:
        """Whether the rows of a plane's results follow each other, here and where they go."""
        dense = self.kept == self.across.places
        return dense and joined(self.statement.epilogue, [self.down.place, self.across.place]) == 2

    def runs(self, b: ir.IRBuilder, rows: ir.Value) -> tuple[ir.Value, ir.Value]:
        """(how many runs of results so many rows are, how long one is)."""
        across = const(self.across.places)
        return (ONE, b.mul(rows, across)) if self.is_flat else (rows, across)

    def emit(self, first: ir.Value, source: ir.Value, begin: ir.Value, rows: ir.Value) -> None:
        """Those of the filters from `first` on, whose sums lie at `source`, for `rows` rows from `begin` on."""
        b, pitch = self.b, self.kept * self.lanes
        some = minimum(b, const(self.lanes), b.sub(const(count(self.filters)), first))
        outer, run = self.runs(b, rows)
        with loop(b, ZERO, outer, short=True) as (line, _):
            with loop(b, ZERO, const(self.lanes), short=True) as (k, _):
                b.store(self.target(first, k, b.add(begin, line), line), address(b, self.slots, k, POINTER))
            start = address(b, source, b.mul(line, const(pitch)), self.element)
            given = [self.slots, start, run, const(self.lanes), some]
            shared_functions.call(b, to_lines, (self.element, self.lanes), given)
        if self.store is None:
            with loop(b, ZERO, some, short=True) as (k, _):
                bind_indices(self.values, self.filters, b.add(first, k))
                known = *self.statement.batch, *self.outside, *self.filters
                self.task.apart("epilogue", known, [self.waits(k), begin, rows], self.hand_over)

    def waits(self, number: ir.Value) -> ir.Value:
        """Where the results of a filter wait."""
        return address(self.b, self.waiting, self.b.mul(number, const(self.most)), self.element)

    def target(self, first: ir.Value, k: ir.Value, place: ir.Value, line: ir.Value) -> ir.Value:
        """Where a run of results of a filter goes, which begins at this place of the first slide."""
        b = self.b
        if self.store is None:
            return address(b, self.waits(k), b.mul(line, const(self.across.places)), self.element)
        bind_indices(self.values, self.filters, minimum(b, b.add(first, k), const(count(self.filters) - 1)))
        self.values.known.update({self.down.place: place, self.across.place: ZERO})
        return self.values.address(self.store.buffer, self.store.offset)

    def hand_over(self, values: Values, given: Sequence[ir.Value]) -> None:
        """The epilogue for the results of a filter: where they wait, the first row, how many; in long runs."""
        (waiting, begin, rows), b = given, values.b
        outer, run = self.runs(b, rows)
        with loop(b, ZERO, outer, short=True) as (line, _):
            start = address(b, waiting, b.mul(line, const(self.across.places)), self.element)
            values.known[self.down.place] = b.add(begin, line)
            with loop(b, ZERO, run) as (x, _):
                values.known[self.across.place] = x
                values.known[self.statement.sum] = b.load(address(b, start, x, self.element), typ=self.element)
                values.block(self.statement.epilogue)
