"""The gradient of a kernel of 3 x 3 taps -> LLVM IR that makes 16 products of matrices of it (see `winograd`).

    for each group of filters, each block of tiles:
        transform what the tiles cover, and what their places have
        for vectors of channels, panels of filters, frequencies: for tiles: sums += element * vector of filters
    for vectors of channels and of filters: transform the sums to taps, turn them in squares, hand them to the epilogue

Threads share groups of filters, or vectors of channels, so every sum has one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from tenon.backends.cpu.arithmetic import register
from tenon.backends.cpu.contraction.emit import (
    ZERO,
    address,
    const,
    element_bytes,
    load_vector,
    loop,
    minimum,
    store_vector,
    transpose,
    zero,
)
from tenon.backends.cpu.contraction.machine import host
from tenon.backends.cpu.epilogue import joined
from tenon.backends.cpu.sliding.cover import know
from tenon.backends.cpu.sliding.task import Task, up
from tenon.backends.cpu.sliding.winograd import (
    FREQUENCIES,
    SIDE,
    TAPS,
    Elements,
    Gradients,
    Layout,
    Panels,
    Tiles,
    add_products,
    block_of,
    both_ways,
    tiles_of,
    to_taps,
)
from tenon.backends.cpu.values import Values
from tenon.loops.expressions import Load
from tenon.loops.ir import Contraction
from tenon.loops.windows import Axis, Sliding, Windows, count

GROUP = 128             # filters of a group, about: their lines of a block are in the second cache
WORKING = 6             # registers that hold no sums


@dataclass(frozen=True)
class WinogradFilterPlan:
    """How a statement is computed: the tiles of its windows, the other factor, groups of panels of its filters."""

    statement: Contraction
    tiles: Tiles
    other: Load
    filters: Axis
    panels: Panels
    group: int          # panels

    @property
    def windows(self) -> Windows:
        return self.tiles.windows

    @property
    def vectors(self) -> int:
        """Vectors of channels."""
        return -(-self.tiles.channels // self.tiles.lanes)

    @property
    def groups(self) -> int:
        return -(-count(self.filters) // (self.group * self.panels.width))

    @property
    def shares_groups(self) -> bool:
        """Whether threads share groups of filters, and not vectors of channels."""
        return self.groups > self.vectors

    @property
    def line(self) -> int:
        """Elements of a line of a group's filters."""
        return self.group * self.panels.width

    @property
    def elements(self) -> Layout:
        """How transformed elements lie: all that one product reads is near."""
        frequency = self.tiles.apart(self.tiles.lanes)
        return Layout(frequency, self.tiles.lanes, FREQUENCIES * frequency)

    @property
    def gradients(self) -> Layout:
        """How what places have lies: a panel is one run."""
        panel = self.tiles.apart(self.panels.width)
        return Layout(self.group * panel, self.panels.width, panel)

    @property
    def sums(self) -> Layout:
        """How sums lie: for each vector of channels and each frequency lines of filters, one a channel."""
        frequency = self.tiles.lanes * self.line + self.tiles.lanes
        return Layout(frequency, self.line, FREQUENCIES * frequency)

    @property
    def taps(self) -> int:
        """Of a vector of channels."""
        return TAPS * TAPS * self.tiles.lanes

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes of a copy, of transformed elements, places and sums, and of taps with filters inside, and outside."""
        lanes = self.tiles.lanes
        vectors = self.vectors if self.tiles.blocks > 1 else 1
        elements = (self.tiles.copied, self.vectors * self.elements.vector, FREQUENCIES * self.gradients.frequency,
                    vectors * self.sums.vector, self.taps * lanes, self.taps * lanes)
        return tuple(up(n * element_bytes(register(self.statement.sum.dtype)), 64) for n in elements)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(self.parts) + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _WinogradFilters(self, task).emit()


def winograd_filter_plan_of(statement: Contraction, found: Sliding) -> WinogradFilterPlan:
    """How to compute the statement whose windows slide like this."""
    machine = host()
    lanes = machine.vector_bytes // element_bytes(register(statement.sum.dtype))
    panels = _panels(count(found.filters), lanes, machine.registers - WORKING)
    all_panels = -(-count(found.filters) // panels.width)
    groups = max(all_panels * panels.width // GROUP, 1)
    return WinogradFilterPlan(statement, tiles_of(found.windows, lanes), found.other, found.filters, panels,
                              -(-all_panels // groups))


def _panels(filters: int, lanes: int, registers: int) -> Panels:
    """The largest register tile that divides a vector of channels and wastes no more filters than others."""
    found = [(-(-filters // (v * lanes)) * (r * v + r + v) / r, -r * v, Panels(r, v, lanes))
             for r in (lanes, lanes // 2, lanes // 4) if r for v in range(1, 5) if r * v <= registers]
    return min(found, key=lambda x: x[:2])[2]


class _WinogradFilters:
    """Writes the loops of a plan."""

    def __init__(self, plan: WinogradFilterPlan, task: Task) -> None:
        self.plan, self.task, self.values, self.b = plan, task, task.values, task.b
        self.element, self.tiles, self.panels = register(plan.statement.sum.dtype), plan.tiles, plan.panels
        self.lanes, self.filters = plan.tiles.lanes, count(plan.filters)
        copy, elements, gradients, self.sums, self.inside, self.outside = task.parts(plan.parts)
        self.elements = Elements(task.values, plan.tiles, copy, elements, plan.elements)
        self.gradients = Gradients(task.values, plan.tiles, plan.other, plan.filters, plan.panels, copy, gradients,
                                   plan.gradients)

    def emit(self) -> None:
        """All groups and vectors of channels of this thread."""
        b, plan = self.b, self.plan
        share = self.task.share(plan.groups if plan.shares_groups else plan.vectors)
        groups, vectors = (share, (ZERO, const(plan.vectors))) if plan.shares_groups else \
            ((ZERO, const(plan.groups)), share)
        with b.if_then(b.icmp_signed("<", *share)), loop(b, *groups, short=True) as (group, _):
            self.group(b.mul(group, const(plan.line)), vectors)

    def group(self, first: ir.Value, vectors: tuple[ir.Value, ir.Value]) -> None:
        """The results for the filters of a group, from `first` on."""
        b, plan, tiles = self.b, self.plan, self.tiles
        some = minimum(b, const(plan.line), b.sub(const(self.filters), first))
        panels = b.udiv(b.add(some, const(self.panels.width - 1)), const(self.panels.width))
        with loop(b, ZERO, const(tiles.blocks), short=True) as (number, _):
            block = block_of(b, tiles, number)
            self.elements.emit(block, vectors)
            self.gradients.emit(block, first, panels)
            depth = b.mul(b.mul(block.images, block.rows), const(tiles.across))
            with loop(b, *vectors, short=True) as (vector, _):
                place = b.sub(vector, vectors[0])
                self.multiply(place, panels, depth, b.icmp_signed("==", number, ZERO))
                if tiles.blocks == 1:
                    self.finish(vector, place, first, some)
        if tiles.blocks > 1:
            with loop(b, *vectors, short=True) as (vector, _):
                self.finish(vector, b.sub(vector, vectors[0]), first, some)

    # ------------------------------------------------------------ products

    def sums_of(self, vector: ir.Value) -> ir.Value:
        """Where the sums of a vector of channels are."""
        place = vector if self.tiles.blocks > 1 else ZERO
        return address(self.b, self.sums, self.b.mul(place, const(self.plan.sums.vector)), self.element)

    def multiply(self, vector: ir.Value, panels: ir.Value, depth: ir.Value, begins: ir.Value) -> None:
        """Add what the tiles of a block have to the sums of a vector of channels."""
        b, plan, (rows, vectors) = self.b, self.plan, (self.panels.rows, self.panels.vectors)
        elements = address(b, self.elements.target, b.mul(vector, const(plan.elements.vector)), self.element)
        sums, none = self.sums_of(vector), zero(ir.VectorType(self.element, self.lanes))
        with loop(b, ZERO, panels, short=True) as (panel, _), \
                loop(b, ZERO, const(FREQUENCIES), short=True) as (frequency, _):
            right = self.gradients.panel(panel, frequency)
            left = address(b, elements, b.mul(frequency, const(plan.elements.frequency)), self.element)
            line = address(b, sums, b.add(b.mul(frequency, const(plan.sums.frequency)),
                                          b.mul(panel, const(self.panels.width))), self.element)
            with loop(b, ZERO, const(self.lanes), const(rows), short=True) as (channel, _):
                start = address(b, line, b.mul(channel, const(plan.line)), self.element)
                where = [address(b, start, const(i * plan.line + v * self.lanes), self.element)
                         for i in range(rows) for v in range(vectors)]
                state = [none] * len(where) if self.tiles.blocks == 1 else \
                    [b.select(begins, none, load_vector(b, x, self.element, self.lanes)) for x in where]
                state = add_products(b, self.panels, state, (address(b, left, channel, self.element), 1, self.lanes),
                                     (right, self.panels.width), depth, self.element)
                for x, value in zip(where, state, strict=True):
                    store_vector(b, value, x)

    # ------------------------------------------------------------ results

    def finish(self, vector: ir.Value, place: ir.Value, first: ir.Value, some: ir.Value) -> None:
        """The results of a vector of channels, for `some` filters from `first` on."""
        b, lanes = self.b, const(self.lanes)
        sums, channel = self.sums_of(place), b.mul(vector, lanes)
        run = b.mul(minimum(b, lanes, b.sub(const(self.tiles.channels), channel)), const(TAPS * TAPS))
        with loop(b, ZERO, some, lanes, short=True) as (f, _):
            self.transform(address(b, sums, f, self.element))
            self.turn()
            with loop(b, ZERO, minimum(b, lanes, b.sub(some, f)), short=True) as (k, _):
                know(self.values, self.plan.filters, b.add(b.add(first, f), k))
                line = address(b, self.outside, b.mul(k, const(self.plan.taps)), self.element)
                self.task.apart("epilogue", self.plan.filters, [line, b.mul(channel, const(TAPS * TAPS)), run],
                                self.hand_over)

    def transform(self, sums: ir.Value) -> None:
        """The taps of a vector of channels for a vector of filters, a line of filters for each."""
        b, lanes, layout = self.b, self.lanes, self.plan.sums
        with loop(b, ZERO, const(lanes), short=True) as (channel, _):
            start = address(b, sums, b.mul(channel, const(layout.tile)), self.element)
            square = [[load_vector(b, address(b, start, const((y * SIDE + x) * layout.frequency), self.element),
                                   self.element, lanes) for x in range(SIDE)] for y in range(SIDE)]
            target = address(b, self.inside, b.mul(channel, const(TAPS * TAPS * lanes)), self.element)
            for y, line in enumerate(both_ways(b, to_taps, square)):
                for x, value in enumerate(line):
                    number = self.number(y, x)
                    store_vector(b, value, address(b, target, const(number * lanes), self.element))

    def number(self, y: int, x: int) -> int:
        """Which of a channel's taps meets the element in this row and column of a window."""
        down, across = (k if s.reach > 0 else TAPS - 1 - k for s, k in zip(self.tiles.slides, (y, x), strict=True))
        return down * TAPS + across

    def turn(self) -> None:
        """Squares of taps, filter by filter."""
        b, lanes = self.b, self.lanes
        with loop(b, ZERO, const(self.plan.taps), const(lanes), short=True) as (x, _):
            square = [load_vector(b, address(b, self.inside, b.mul(b.add(x, const(k)), const(lanes)), self.element),
                                  self.element, lanes) for k in range(lanes)]
            for k, value in enumerate(transpose(b, square)):
                store_vector(b, value, address(b, self.outside, b.add(x, const(k * self.plan.taps)), self.element))

    def hand_over(self, values: Values, given: Sequence[ir.Value]) -> None:
        """The epilogue for neighbouring channels and taps of one filter: where they wait, the first's number, how many.
        """
        (line, first, run), b = given, values.b
        statement, axis = self.plan.statement, (*self.plan.windows.channels, *self.plan.windows.taps)
        together = joined(statement.epilogue, axis) == len(axis)
        with loop(b, ZERO, run) as (k, _):
            if together:
                values.known.update(dict.fromkeys(axis, ZERO))
                values.known[axis[-1]] = b.add(first, k)
            else:
                know(values, axis, b.add(first, k))
            values.known[statement.sum] = b.load(address(b, line, k, self.element), typ=self.element)
            values.block(statement.epilogue)
