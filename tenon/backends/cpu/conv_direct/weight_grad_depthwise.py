"""The weight gradient of a convolution with few channels -> LLVM IR that sums over all places of windows.

    for each batch (group of channels):
        for each image and block of rows:
            copy what the windows of the block cover, with zeros around it
            for tiles of filters and taps: for rows, vectors: sums += vector of the copy * vector of the other
        every sum, a vector until now, is added up, and handed to the epilogue

A batch is computed by one thread, so sums do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from math import prod

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    add,
    address,
    between,
    const,
    element_bytes,
    load_vector,
    loop,
    masked_load,
    minimum,
    multiply_add,
    store_vector,
    zero,
)
from tenon.backends.cpu.contraction.transpose_registers import widened
from tenon.backends.cpu.conv_direct.padded_copy import Cover, bind_indices
from tenon.backends.cpu.conv_direct.work_share import SPARE_REGISTERS, Task, block_of
from tenon.backends.cpu.scalar_codegen import I32, register
from tenon.loops.expressions import Load
from tenon.loops.loop_ir import Contraction
from tenon.loops.select_conv_schedule import Sliding
from tenon.loops.window_access import Axis, Windows, count
from tenon.records import dataclass, replace
from tenon.target import Target, round_up


@dataclass(frozen=True)
class SumPlan:
    """How a statement is computed: its windows, the other factor and its filters, `together` x `taps` sums a tile."""

    statement: Contraction
    windows: Windows
    other: Load
    filters: Axis
    together: int
    taps: int
    lanes: int
    block: int

    @property
    def cover(self) -> Cover:
        """Of a block, whose rows are whole vectors."""
        *places, last = (s.places for s in self.windows.slides)
        sizes = [*places, round_up(last, self.lanes)]
        sizes[0] = round_up(self.block, self.lanes) if len(sizes) == 1 else self.block
        return Cover(self.windows, tuple(sizes), self.lanes)

    @property
    def sums(self) -> int:
        """How many sums a batch has."""
        return count(self.filters) * count(self.windows.channels) * prod(s.taps for s in self.windows.slides)

    @property
    def parts(self) -> tuple[int, int]:
        """Bytes of the copies of all channels, and of the sums, a vector each."""
        each = element_bytes(register(self.statement.sum.dtype))
        copies = self.cover.elements * count(self.windows.channels)
        return round_up(copies * each, 64), round_up(self.sums * self.lanes * each, 64)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(self.parts) + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _SlidingSums(self, task).emit()


def sum_plan_of(statement: Contraction, found: Sliding, machine: Target) -> SumPlan:
    """How to compute the statement whose windows slide like this."""
    lanes = machine.vector_bytes // element_bytes(register(statement.sum.dtype))
    taps, most = prod(s.taps for s in found.windows.slides), machine.registers - SPARE_REGISTERS
    chunk = -(-taps // -(-taps // most))
    together = min(max(most // chunk, 1), count(found.filters))
    plan = SumPlan(statement, found.windows, found.other, found.filters, together, chunk, lanes,
                   found.windows.slides[0].places)
    step = lanes if len(found.windows.slides) == 1 else 1
    return replace(plan, block=min(round_up(block_of(plan.cover), step), plan.block))


class _SlidingSums:
    """Writes the loops of a plan."""

    def __init__(self, plan: SumPlan, task: Task) -> None:
        self.plan, self.task, self.values, self.b = plan, task, task.values, task.b
        self.element, self.slides = register(plan.statement.sum.dtype), plan.windows.slides
        self.vector = ir.VectorType(self.element, plan.lanes)
        self.cover = plan.cover
        self.copies, self.sums = task.parts(plan.parts)
        self.taps = list(combinations(*(range(s.taps) for s in self.slides)))

    def emit(self) -> None:
        """All batches of this thread."""
        b, plan = self.b, self.plan
        blocks = -(-self.slides[0].places // plan.block)
        with loop(b, *self.task.share(count(plan.statement.batch))) as (task, _):
            bind_indices(self.values, plan.statement.batch, task)
            with loop(b, ZERO, const(plan.sums), short=True) as (k, _):
                store_vector(b, zero(self.vector), self.sum_at(k))
            with loop(b, ZERO, const(count(plan.windows.outside)), short=True) as (image, _), \
                    loop(b, ZERO, const(blocks), short=True) as (block, _):
                bind_indices(self.values, plan.windows.outside, image)
                self.block(b.mul(block, const(plan.block)))
            self.finish()

    def sum_at(self, number: ir.Value) -> ir.Value:
        return address(self.b, self.sums, self.b.mul(number, const(self.plan.lanes)), self.element)

    def block(self, first: ir.Value) -> None:
        """Add what the places from `first` of the first slide on have to all sums."""
        b, plan = self.b, self.plan
        self.cover.emit(self.values, self.copies, first)
        counts = [const(s.places) for s in self.slides]
        counts[0] = minimum(b, const(plan.block), b.sub(counts[0], first))
        filters, step = count(plan.filters), plan.together
        whole = filters // step * step
        for start, stop, together in ((0, whole, step), (whole, filters, filters - whole)):
            if start < stop:
                with loop(b, const(start), const(stop), const(together), short=True) as (f, _), \
                        loop(b, ZERO, const(count(plan.windows.channels)), short=True) as (c, _):
                    for tap in range(0, len(self.taps), plan.taps):
                        self.tile(f, c, range(tap, min(tap + plan.taps, len(self.taps))), together, first, counts)

    def tile(self, f: ir.Value, c: ir.Value, taps: range, together: int, first: ir.Value,
             counts: list[ir.Value]) -> None:
        """Add to the sums of some filters and taps for one channel."""
        b, lanes, channels = self.b, self.plan.lanes, count(self.plan.windows.channels)
        row = b.add(b.mul(f, const(channels)), c)
        where = [self.sum_at(b.add(b.mul(b.add(row, const(i * channels)), const(len(self.taps))), const(tap)))
                 for i in range(together) for tap in taps]
        copy = address(b, self.copies, b.mul(c, const(self.cover.elements)), self.element)
        kept = [load_vector(b, place, self.element, lanes) for place in where]

        def over(places: list[ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
            """The sums with what all places along the other slides have."""
            if len(places) == len(counts) - 1:
                lines = [self.line(b.add(f, const(i)), first, places) for i in range(together)]
                start = address(b, copy, self.cover.start(b, [*places, ZERO]), self.element)
                return self.along(sums, start, lines, taps, counts[-1])
            with loop(b, ZERO, counts[len(places)], carried=sums, short=True) as (place, inner):
                inner[:] = over([*places, place], inner)
            return inner

        state = over([], kept)
        for place, value in zip(where, state, strict=True):
            store_vector(b, value, place)

    def line(self, f: ir.Value, first: ir.Value, places: Sequence[ir.Value]) -> ir.Value:
        """Where the other factor has the places of a row, for one filter."""
        bind_indices(self.values, self.plan.filters, f)
        for slide, place in zip(self.slides, [*places, ZERO], strict=True):
            self.values.known[slide.place] = place
        start = self.slides[0].place
        self.values.known[start] = self.b.add(self.values.known[start], first)
        return self.values.address(self.plan.other.buffer, self.plan.other.offset)

    def along(self, sums: list[ir.Value], start: ir.Value, lines: Sequence[ir.Value], taps: range,
              places: ir.Value) -> list[ir.Value]:
        """The sums with what so many places of a row have: whole vectors, then those left over."""
        b, lanes = self.b, self.plan.lanes
        whole = b.and_(places, const(-lanes))
        with loop(b, ZERO, whole, const(lanes), carried=sums, short=True) as (x, inner):
            inner[:] = self.added(inner, address(b, start, x, self.element), lines, taps, x, None)
        if len(self.slides) > 1 and self.slides[-1].places % lanes == 0:
            return inner
        left = b.trunc(b.sub(places, whole), I32)
        mask = between(b, ir.Constant(I32, 0), left, lanes)
        return self.added(inner, address(b, start, whole, self.element), lines, taps, whole, mask)

    def added(self, sums: Sequence[ir.Value], copy: ir.Value, lines: Sequence[ir.Value], taps: range, x: ir.Value,
              mask: ir.Value | None) -> list[ir.Value]:
        """The sums with one vector of places; where there is none, nothing is added, whatever the copy holds."""
        b, lanes, found = self.b, self.plan.lanes, list(sums)
        others = [self.other(line, x, mask) for line in lines]
        for k, tap in enumerate(taps):
            where = address(b, copy, const(self.cover.place(self.taps[tap])), self.element)
            vector = load_vector(b, where, self.element, lanes)
            for i, other in enumerate(others):
                number = i * len(taps) + k
                total = multiply_add(b, vector, other, found[number])
                found[number] = total if mask is None else b.select(mask, total, found[number])
        return found

    def other(self, line: ir.Value, x: ir.Value, mask: ir.Value | None) -> ir.Value:
        """A vector of the other factor."""
        b, dtype, lanes = self.b, self.plan.other.dtype, self.plan.lanes
        where = b.gep(line, [x], source_etype=scalar.in_memory(dtype))
        kind = ir.VectorType(ir.IntType(16) if dtype.bits == 16 else scalar.in_memory(dtype), lanes)
        found = b.load(where, typ=kind, align=dtype.itemsize) if mask is None else \
            masked_load(b, where, mask, zero(kind))
        return widened(b, found, dtype, lanes)

    def finish(self) -> None:
        """Hand every sum of a batch to the epilogue."""
        b, plan = self.b, self.plan
        axis = (*plan.filters, *plan.windows.channels, *plan.windows.taps)
        with loop(b, ZERO, const(plan.sums), short=True) as (number, _):
            vector = load_vector(b, self.sum_at(number), self.element, plan.lanes)
            bind_indices(self.values, axis, number)
            self.values.known[plan.statement.sum] = self.total(vector)
            self.values.block(plan.statement.epilogue)

    def total(self, vector: ir.Value) -> ir.Value:
        """The lanes added up, halves first."""
        b, half = self.b, self.plan.lanes // 2
        while half:
            numbers = [(k + half) % self.plan.lanes for k in range(self.plan.lanes)]
            other = b.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(I32, self.plan.lanes), numbers))
            vector, half = add(b, vector, other), half // 2
        return b.extract_element(vector, ir.Constant(I32, 0))
