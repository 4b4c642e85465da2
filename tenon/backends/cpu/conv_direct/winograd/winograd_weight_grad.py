"""The gradient of a kernel of 3 x 3 taps -> LLVM IR that makes 16 products of matrices of it (see
`winograd_transforms`).

    for each group of filters, each block of tiles:
        transform what the tiles cover, and what their places have
        for vectors of channels, panels of filters, frequencies: for tiles: sums += element * vector of filters
    for vectors of channels and of filters: transform the sums to taps, transpose them, hand them to the epilogue

Threads share groups of filters, or vectors of channels, so every sum has one order.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
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
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.conv_direct.winograd.transform_inputs import Gradients, InputElements, InputLayout
from tenon.backends.cpu.conv_direct.winograd.winograd_blocking import (
    Panels,
    WinogradTiles,
    add_products,
    block_of,
    tiles_of,
)
from tenon.backends.cpu.conv_direct.winograd.winograd_transforms import Tilings, both_ways, to_taps
from tenon.backends.cpu.conv_direct.work_share import Task, finish_taps
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import register
from tenon.llvm import shared_functions
from tenon.loops.expressions import Load
from tenon.loops.loop_ir import Contraction
from tenon.loops.select_conv_schedule import Sliding
from tenon.loops.window_access import Axis, Windows, count
from tenon.records import dataclass
from tenon.target import Target, round_up

GROUP_FILTERS = 128     # filters of a group, about: their lines of a block are in the second cache
WORKING_REGISTERS = 6   # registers that hold no sums


@dataclass(frozen=True)
class WinogradFilterPlan:
    """How a statement is computed: the tiles of its windows, the other factor, groups of panels of its filters."""

    statement: Contraction
    tiles: WinogradTiles
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
    def elements(self) -> InputLayout:
        """How transformed elements lie: all that one product reads is near."""
        frequency = self.tiles.apart(self.tiles.lanes)
        return InputLayout(frequency, self.tiles.lanes, self.tiles.frequencies * frequency)

    @property
    def gradients(self) -> InputLayout:
        """How what places have lies: a panel is one run."""
        panel = self.tiles.apart(self.panels.width)
        return InputLayout(self.group * panel, self.panels.width, panel)

    @property
    def sums(self) -> InputLayout:
        """How sums lie: for each vector of channels and each frequency lines of filters, one a channel."""
        frequency = self.tiles.lanes * self.line + self.tiles.lanes
        return InputLayout(frequency, self.line, self.tiles.frequencies * frequency)

    @property
    def taps(self) -> int:
        """Of a channel."""
        return count(self.windows.taps)

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes of a copy, of transformed elements, places and sums, and of taps with filters inside, and outside."""
        lanes = self.tiles.lanes
        vectors = self.vectors if self.tiles.blocks > 1 else 1
        gradients, transposed = self.tiles.frequencies * self.gradients.frequency, self.taps * lanes * lanes
        elements = (self.tiles.copied, self.vectors * self.elements.vector, gradients, vectors * self.sums.vector,
                    transposed, transposed)
        return tuple(round_up(n * element_bytes(register(self.statement.sum.dtype)), 64) for n in elements)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(self.parts) + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _WinogradFilters(self, task).emit()


def winograd_filter_plan_of(statement: Contraction, found: Sliding, machine: Target) -> WinogradFilterPlan:
    """How to compute the statement whose windows slide like this."""
    lanes = machine.vector_bytes // element_bytes(register(statement.sum.dtype))
    panels = _panels(count(found.filters), lanes, machine.registers - WORKING_REGISTERS)
    all_panels = -(-count(found.filters) // panels.width)
    groups = max(all_panels * panels.width // GROUP_FILTERS, 1)
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
        self.elements = InputElements(task.values, plan.tiles, copy, elements, plan.elements)
        self.gradients = Gradients(task.values, plan.tiles, plan.other, plan.filters, plan.panels, copy, gradients,
                                   plan.gradients)

    def emit(self) -> None:
        """All groups and vectors of channels of this thread, of each batch."""
        b, plan = self.b, self.plan
        units = plan.groups if plan.shares_groups else plan.vectors
        with self.task.batches(plan.statement.batch, units) as own:
            groups, vectors = (own, (ZERO, const(plan.vectors))) if plan.shares_groups else \
                ((ZERO, const(plan.groups)), own)
            with loop(b, *groups, short=True) as (group, _):
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
        b, plan = self.b, self.plan
        elements = address(b, self.elements.target, b.mul(vector, const(plan.elements.vector)), self.element)
        numbers = (self.tiles.frequencies, plan.elements.frequency, plan.gradients.frequency, plan.gradients.vector,
                   plan.sums.frequency)
        shared_functions.call(b, multiply, (self.element, self.panels, plan.line, self.tiles.blocks == 1), [
            elements, self.gradients.target, self.sums_of(vector), panels, depth, begins, *map(const, numbers)])

    # ------------------------------------------------------------ results

    def finish(self, vector: ir.Value, place: ir.Value, first: ir.Value, some: ir.Value) -> None:
        """The results of a vector of channels, for `some` filters from `first` on."""
        b, lanes = self.b, const(self.lanes)
        sums, channel = self.sums_of(place), b.mul(vector, lanes)
        run = b.mul(minimum(b, lanes, b.sub(const(self.tiles.channels), channel)), const(self.plan.taps))
        with loop(b, ZERO, some, lanes, short=True) as (f, _):
            numbers = self.plan.sums.tile, self.plan.sums.frequency
            form = self.element, self.lanes, self.tiles.tilings, self.order
            shared_functions.call(b, transform_and_transpose, form, [
                address(b, sums, f, self.element), self.inside, self.outside, *map(const, numbers)])
            with loop(b, ZERO, minimum(b, lanes, b.sub(some, f)), short=True) as (k, _):
                bind_indices(self.values, self.plan.filters, b.add(b.add(first, f), k))
                line = address(b, self.outside, b.mul(k, const(self.plan.taps * self.lanes)), self.element)
                known = *self.plan.statement.batch, *self.plan.filters
                self.task.apart("epilogue", known, [line, b.mul(channel, const(self.plan.taps)), run], self.hand_over)

    @property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """Which of a channel's taps meets the element in this row and column of a window."""
        down, across = ([k if s.reach > 0 else s.taps - 1 - k for k in range(s.taps)] for s in self.tiles.slides)
        return tuple(tuple(y * len(across) + x for x in across) for y in down)

    def hand_over(self, values: Values, given: Sequence[ir.Value]) -> None:
        """The epilogue for some taps of a filter."""
        finish_taps(values, self.plan.statement, self.plan.windows, *given)


# ---------------------------------------------------------------- pieces

def multiply(b: ir.IRBuilder, element: ir.Type, panels: Panels, line: int, alone: bool, elements: ir.Value,
             gradients: ir.Value, sums: ir.Value, count: ir.Value, depth: ir.Value, begins: ir.Value,
             frequencies: ir.Value, left: ir.Value, right: ir.Value, panel_apart: ir.Value, apart: ir.Value) -> None:
    """Write a piece: what the tiles of a block add to the sums of a vector of channels, for `count` panels of filters.

    Frequencies are `left`, `right` and `apart` elements apart, channels `line`.  The block is `alone`, or `begins`.
    """
    none, lanes = zero(ir.VectorType(element, panels.lanes)), panels.lanes
    with loop(b, ZERO, count, short=True) as (panel, _), \
            loop(b, ZERO, frequencies, short=True) as (frequency, _):
        at = b.add(b.mul(frequency, right), b.mul(panel, panel_apart))
        place = b.add(b.mul(frequency, apart), b.mul(panel, const(panels.width)))
        factor = address(b, elements, b.mul(frequency, left), element)
        with loop(b, ZERO, const(lanes), const(panels.rows), short=True) as (channel, _):
            start = address(b, address(b, sums, place, element), b.mul(channel, const(line)), element)
            where = [address(b, start, const(i * line + v * lanes), element)
                     for i in range(panels.rows) for v in range(panels.vectors)]
            state = [none] * len(where) if alone else \
                [b.select(begins, none, load_vector(b, x, element, lanes)) for x in where]
            state = add_products(b, panels, state, (address(b, factor, channel, element), 1, lanes),
                                 (address(b, gradients, at, element), panels.width), depth, element)
            for x, value in zip(where, state, strict=True):
                store_vector(b, value, x)


def transform_and_transpose(b: ir.IRBuilder, element: ir.Type, lanes: int, tilings: Tilings,
                            order: Sequence[Sequence[int]], sums: ir.Value, inside: ir.Value, outside: ir.Value,
                            apart: ir.Value, frequency: ir.Value) -> None:
    """Write a piece: the taps of a vector of channels for a vector of filters, a line for each filter.

    `order` says where in a line those of a row and column of a window go.
    """
    taps, (high, wide) = sum(map(len, order)) * lanes, (tiling.frequencies for tiling in tilings)
    with loop(b, ZERO, const(lanes), short=True) as (channel, _):
        start = address(b, sums, b.mul(channel, apart), element)
        square = [[load_vector(b, address(b, start, b.mul(const(y * wide + x), frequency), element), element, lanes)
                   for x in range(wide)] for y in range(high)]
        target = address(b, inside, b.mul(channel, const(taps)), element)
        for numbers, line in zip(order, both_ways(b, to_taps, tilings, square), strict=True):
            for number, value in zip(numbers, line, strict=True):
                store_vector(b, value, address(b, target, const(number * lanes), element))
    with loop(b, ZERO, const(taps), const(lanes), short=True) as (x, _):
        rows = [load_vector(b, address(b, inside, b.mul(b.add(x, const(k)), const(lanes)), element), element, lanes)
                for k in range(lanes)]
        for k, value in enumerate(transpose(b, rows)):
            store_vector(b, value, address(b, outside, b.add(x, const(k * taps)), element))
