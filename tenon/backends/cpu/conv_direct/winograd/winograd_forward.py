"""A convolution with 3 x 3 windows -> LLVM IR that makes 16 products of matrices of it (see `winograd_transforms`).

    for each block of tiles:
        transform what the tiles cover: for each frequency lines of channels, one a tile
        for each panel of filters (whose taps are transformed when they are first read):
            for frequencies: for tiles x vectors of filters: for channels: sums += element * vector of the panel
            for vectors of filters, images: transform the sums, transpose them in squares, hand them to the epilogue

Threads share blocks, or panels where there are few blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    address,
    const,
    element_bytes,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    maximum,
    minimum,
    store_vector,
    transpose,
    zero,
)
from tenon.backends.cpu.contraction.memset import fill
from tenon.backends.cpu.contraction.transpose_registers import addresses, in_memory, lines_at, widened
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.conv_direct.transposed_store import TransposedStore
from tenon.backends.cpu.conv_direct.winograd.transform_inputs import InputElements, InputLayout, over_tiles, store_line
from tenon.backends.cpu.conv_direct.winograd.winograd_blocking import (
    STEP,
    Panels,
    WinogradBlock,
    WinogradTiles,
    add_products,
    block_of,
    panels_of,
    tiles_of,
)
from tenon.backends.cpu.conv_direct.winograd.winograd_transforms import Tilings, both_ways, of_taps, to_sums
from tenon.backends.cpu.conv_direct.work_share import Task
from tenon.backends.cpu.scalar_codegen import POINTER, register
from tenon.llvm import shared_functions
from tenon.locks import cached_property
from tenon.loops.affine import affine
from tenon.loops.expressions import Load, size
from tenon.loops.loop_ir import Contraction
from tenon.loops.select_conv_schedule import Sliding
from tenon.loops.simplify_expressions import substitute
from tenon.loops.window_access import Axis, Windows, count
from tenon.records import dataclass
from tenon.target import Target, round_up
from tenon.types import DType


@dataclass(frozen=True)
class WinogradForwardPlan:
    """How a statement is computed: the tiles of its windows, the other factor, panels of its filters."""

    statement: Contraction
    tiles: WinogradTiles
    weights: Load
    filters: Axis
    panels: Panels

    @property
    def windows(self) -> Windows:
        return self.tiles.windows

    @property
    def channels(self) -> int:
        """Elements of a line of channels."""
        return round_up(self.tiles.channels, self.tiles.lanes)

    @property
    def count(self) -> int:
        """Panels of filters."""
        return -(-count(self.filters) // self.panels.width)

    @property
    def kept(self) -> int:
        """Panels whose transformed taps are kept: all, unless they are read but once."""
        return self.count if self.tiles.blocks > 1 else 1

    @property
    def frequency(self) -> int:
        """Elements from one frequency of a panel to the next: never a power of two."""
        return self.tiles.channels * self.panels.width + self.panels.lanes

    @property
    def shares_blocks(self) -> bool:
        """Whether threads share blocks, and not panels."""
        return self.tiles.blocks >= min(self.count, 8)

    @property
    def run(self) -> int:
        """Columns of results that are kept in a row: whole tiles."""
        return STEP * self.tiles.across

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes of a copy, of transformed elements, taps and sums, and of results with filters inside, and outside."""
        tiles, panels = self.tiles, self.panels
        rows = STEP * tiles.rows * self.run + tiles.lanes
        over = panels.rows * max(self.channels, panels.width)       # a tile of sums may go over the end
        frequencies = tiles.frequencies
        elements = (tiles.copied, frequencies * tiles.apart(self.channels) + over,
                    self.kept * frequencies * self.frequency, frequencies * tiles.apart(panels.width) + over,
                    rows * tiles.lanes, rows * tiles.lanes)
        return tuple(round_up(n * element_bytes(register(self.statement.sum.dtype)), 64) for n in elements)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(self.parts) + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _Winograd(self, task).emit()


def winograd_plan_of(statement: Contraction, found: Sliding, machine: Target) -> WinogradForwardPlan:
    """How to compute the statement whose windows slide like this."""
    lanes = machine.vector_bytes // element_bytes(register(statement.sum.dtype))
    tiles = tiles_of(found.windows, lanes)
    return WinogradForwardPlan(statement, tiles, found.other, found.filters,
                        panels_of(machine, tiles.block, count(found.filters), lanes))


class _Winograd:
    """Writes the loops of a plan."""

    def __init__(self, plan: WinogradForwardPlan, task: Task) -> None:
        self.plan, self.task, self.values, self.b = plan, task, task.values, task.b
        self.element, self.tiles, self.panels = register(plan.statement.sum.dtype), plan.tiles, plan.panels
        self.lanes, self.slides = plan.tiles.lanes, plan.tiles.slides
        copy, elements, self.taps, self.sums, self.inside, outside = task.parts(plan.parts)
        self.elements = InputElements(task.values, plan.tiles, copy, elements,
                                 InputLayout(plan.tiles.apart(plan.channels), plan.channels, self.lanes))
        self.results = TransposedStore(task, plan.statement, plan.windows, plan.filters, self.lanes, outside,
                               STEP * plan.tiles.rows * plan.run, plan.run)
        self.filters, self.slots = count(plan.filters), addresses(task.b, self.lanes)

    def emit(self) -> None:
        """All blocks and panels of this thread, of each batch."""
        b, plan = self.b, self.plan
        units = self.tiles.blocks if plan.shares_blocks else plan.count
        with self.task.batches(plan.statement.batch, units) as own:
            blocks, panels = (own, (ZERO, const(plan.count))) if plan.shares_blocks else \
                ((ZERO, const(self.tiles.blocks)), own)
            self.first_panel = ZERO if plan.shares_blocks else panels[0]
            self.clear()
            if plan.kept > 1:
                with loop(b, *panels, short=True) as (panel, _):
                    self.transform_taps(panel)
            with loop(b, *blocks, short=True) as (number, _):
                self.block(number, panels)

    def clear(self) -> None:
        """No element is read that nobody wrote: sums of what lies beyond the last tile take no time."""
        fill(self.b, self.element, self.lanes, self.elements.target, const(self.panels.rows * self.plan.channels),
             const(self.tiles.frequencies), const(self.tiles.apart(self.plan.channels)))

    def block(self, number: ir.Value, panels: tuple[ir.Value, ir.Value]) -> None:
        """The results of a block for some panels of filters."""
        b, tiles = self.b, self.tiles
        block = block_of(b, tiles, number)
        self.elements.emit(block, (ZERO, const(self.plan.channels // self.lanes)))
        with loop(b, *panels, short=True) as (panel, _):
            if self.plan.kept == 1:
                self.transform_taps(panel)
            self.multiply(panel, b.mul(b.mul(block.images, block.rows), const(tiles.across)))
            with loop(b, ZERO, const(self.panels.vectors), short=True) as (v, _), \
                    loop(b, ZERO, block.images, short=True) as (i, _):
                bind_indices(self.values, self.plan.windows.outside, b.add(block.image, i))
                self.finish(panel, v, i, block)

    # ------------------------------------------------------------ taps

    def panel_at(self, panel: ir.Value, frequency: ir.Value) -> ir.Value:
        """Where the transformed taps of a panel are."""
        b, kept = self.b, ZERO if self.plan.kept == 1 else self.b.sub(panel, self.first_panel)
        number = b.add(b.mul(kept, const(self.tiles.frequencies)), frequency)
        return address(b, self.taps, b.mul(number, const(self.plan.frequency)), self.element)

    def transform_taps(self, panel: ir.Value) -> None:
        """The taps of all channels for a panel, a vector of filters at a time."""
        b, plan, width = self.b, self.plan, self.panels.width
        load, terms, channels = plan.weights, affine(plan.weights.offset).terms, plan.windows.channels
        nowhere = {index: size(0) for index in (*plan.windows.taps, *channels)}
        offset = substitute(load.offset, nowhere)
        outer, inner = channels[:-1], count(channels[-1:])
        with loop(b, ZERO, const(width), const(self.lanes), short=True) as (v, _):
            with loop(b, ZERO, const(self.lanes), short=True) as (k, _):
                number = b.add(b.add(b.mul(panel, const(width)), v), k)
                bind_indices(self.values, plan.filters, minimum(b, number, const(self.filters - 1)))
                b.store(self.values.address(load.buffer, offset), address(b, self.slots, k, POINTER))
            with loop(b, ZERO, const(count(outer)), short=True) as (some, _):
                bind_indices(self.values, outer, some)
                first: ir.Value = ZERO
                for index in outer:
                    first = b.add(first, b.mul(self.values.known[index], const(int(terms.get(index, 0)))))
                place = b.add(b.mul(some, const(inner * width)), v)
                target = address(b, self.panel_at(panel, ZERO), place, self.element)
                apart = int(terms.get(channels[-1], 0)) if channels else 0
                shared_functions.call(b, transform_taps, (load.dtype, self.lanes, self.tiles.tilings, self.order), [
                    self.slots, target, first, *map(const, (inner, apart, width, plan.frequency))])

    @cached_property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """Which of a channel's taps meets the element in this row and column of a window."""
        terms = affine(self.plan.weights.offset).terms
        steps = [int(terms[s.tap]) for s in self.slides if s.tap is not None]
        taps = [[k if s.reach > 0 else s.taps - 1 - k for k in range(s.taps)] for s in self.slides]
        return tuple(tuple(y * steps[0] + x * steps[1] for x in taps[1]) for y in taps[0])

    # ------------------------------------------------------------ products

    def multiply(self, panel: ir.Value, tiles: ir.Value) -> None:
        """The sums of all frequencies; the last tiles of a block may be computed twice, to be a whole register tile."""
        b, plan, width = self.b, self.plan, self.panels.width
        numbers = (self.tiles.channels, self.tiles.frequencies, self.tiles.apart(plan.channels), plan.frequency,
                   self.tiles.apart(width))
        shared_functions.call(b, multiply, (self.element, self.panels, plan.channels), [
            self.elements.target, self.panel_at(panel, ZERO), self.sums, tiles, *map(const, numbers)])

    # ------------------------------------------------------------ results

    def finish(self, panel: ir.Value, v: ir.Value, image: ir.Value, block: WinogradBlock) -> None:
        """The results of one image for a vector of filters."""
        b, plan, lanes = self.b, self.plan, self.lanes
        width, tile = self.panels.width, b.mul(image, const(self.tiles.rows * self.tiles.across))
        sums = address(b, self.sums, b.add(b.mul(tile, const(width)), b.mul(v, const(lanes))), self.element)
        shared_functions.call(b, transform_sums, (self.element, lanes, self.tiles.tilings), [
            sums, self.inside, block.rows, *map(const, (self.tiles.across, plan.run, width, self.tiles.apart(width)))])
        place = b.mul(block.first, const(STEP))
        lines = minimum(b, b.mul(block.rows, const(STEP)), b.sub(const(self.slides[0].places), place))
        self.results.emit(b.add(b.mul(panel, const(width)), b.mul(v, const(lanes))), self.inside, place, lines)


# ---------------------------------------------------------------- pieces

def transform_taps(b: ir.IRBuilder, dtype: DType, lanes: int, tilings: Tilings, order: Sequence[Sequence[int]],
                   starts: ir.Value, target: ir.Value, first: ir.Value, channels: ir.Value, apart: ir.Value,
                   width: ir.Value, frequency: ir.Value) -> None:
    """Write a piece: the taps of channels, so far `apart`, of filters whose taps begin at `starts`.

    `order` says which of them meets the element in a row and column of a window: squares of lines are transposed.
    """
    element, lines = register(dtype), lines_at(b, starts, lanes)
    none, taps = zero(ir.VectorType(in_memory(dtype), lanes)), sum(map(len, order))
    with loop(b, ZERO, channels, short=True) as (channel, _):
        offset, columns = b.add(first, b.mul(channel, apart)), list[ir.Value]()
        for start in range(0, taps, lanes):
            mask, at = lanes_below(taps - start, lanes), b.add(offset, const(start))
            rows = [masked_load(b, b.gep(line, [at], source_etype=scalar.in_memory(dtype)), mask, none)
                    for line in lines]
            columns += transpose(b, [widened(b, row, dtype, lanes) for row in rows])
        place = address(b, target, b.mul(channel, width), element)
        for y, line in enumerate(both_ways(b, of_taps, tilings, [[columns[n] for n in line] for line in order])):
            store_line(b, line, place, y, frequency, element)


def multiply(b: ir.IRBuilder, element: ir.Type, panels: Panels, line: int, elements: ir.Value, taps: ir.Value,
             sums: ir.Value, tiles: ir.Value, channels: ir.Value, frequencies: ir.Value, left: ir.Value,
             right: ir.Value, apart: ir.Value) -> None:
    """Write a piece: the sums of all frequencies, which are `left`, `right` and `apart` elements apart."""
    none = [zero(ir.VectorType(element, panels.lanes))] * (panels.rows * panels.vectors)
    last = maximum(b, b.sub(tiles, const(panels.rows)), ZERO)
    with loop(b, ZERO, frequencies, short=True) as (frequency, _):
        factor, panel, target = (address(b, where, b.mul(frequency, by), element)
                                 for where, by in ((elements, left), (taps, right), (sums, apart)))
        with loop(b, ZERO, tiles, const(panels.rows), short=True) as (tile, _):
            tile = minimum(b, tile, last)
            start = address(b, factor, b.mul(tile, const(line)), element)
            found = add_products(b, panels, none, (start, line, 1), (panel, panels.width), channels, element)
            where = address(b, target, b.mul(tile, const(panels.width)), element)
            for number, value in enumerate(found):
                store_vector(b, value, address(b, where, const(number * panels.lanes), element))


def transform_sums(b: ir.IRBuilder, element: ir.Type, lanes: int, tilings: Tilings, sums: ir.Value,
                   target: ir.Value, rows: ir.Value, across: ir.Value, run: ir.Value, width: ir.Value,
                   frequency: ir.Value) -> None:
    """Write a piece: rows of tiles, each to two rows of results."""
    (down, beside), (high, wide) = (t.gap for t in tilings), (t.frequencies for t in tilings)
    with over_tiles(b, rows, down) as (row, first), over_tiles(b, across, beside) as (j, column):
        where = address(b, sums, b.mul(b.add(b.mul(row, across), j), width), element)
        square = [[load_vector(b, address(b, where, b.mul(const(y * wide + x), frequency), element), element, lanes)
                   for x in range(wide)] for y in range(high)]
        corner = b.add(b.mul(first, run), column)
        for y, line in enumerate(both_ways(b, to_sums, tilings, square)):
            for x, value in enumerate(line):
                at = b.mul(b.add(corner, b.add(b.mul(run, const(y * down)), const(x * beside))), const(lanes))
                store_vector(b, value, address(b, target, at, element))
