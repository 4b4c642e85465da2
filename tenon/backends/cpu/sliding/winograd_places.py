"""A convolution with 3 x 3 windows -> LLVM IR that makes 16 products of matrices of it (see `winograd`).

    for each block of tiles:
        transform what the tiles cover: for each frequency lines of channels, one a tile
        for each panel of filters (whose taps are transformed when they are first read):
            for frequencies: for tiles x vectors of filters: for channels: sums += element * vector of the panel
            for vectors of filters, images: transform the sums, turn them in squares, hand them to the epilogue

Threads share blocks, or panels where there are few blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from tenon.backends.cpu import arithmetic as scalar
from tenon.backends.cpu.arithmetic import I32, register
from tenon.backends.cpu.contraction.emit import (
    ZERO,
    address,
    const,
    element_bytes,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    masked_store,
    maximum,
    minimum,
    store_vector,
    transpose,
    zero,
)
from tenon.backends.cpu.contraction.machine import host
from tenon.backends.cpu.contraction.packing import between
from tenon.backends.cpu.epilogue import joined, only_stored
from tenon.backends.cpu.sliding.cover import know, widened
from tenon.backends.cpu.sliding.task import Task, up
from tenon.backends.cpu.sliding.winograd import (
    FREQUENCIES,
    SIDE,
    STEP,
    TAPS,
    Block,
    Elements,
    Layout,
    Line,
    Panels,
    Tiles,
    add_products,
    block_of,
    both_ways,
    of_taps,
    panels_of,
    tiles_of,
    to_sums,
)
from tenon.backends.cpu.values import Values
from tenon.loops.affine import affine
from tenon.loops.expressions import Load, size
from tenon.loops.ir import Contraction
from tenon.loops.simplify import substitute
from tenon.loops.windows import Axis, Sliding, Windows, count


@dataclass(frozen=True)
class WinogradPlan:
    """How a statement is computed: the tiles of its windows, the other factor, panels of its filters."""

    statement: Contraction
    tiles: Tiles
    weights: Load
    filters: Axis
    panels: Panels

    @property
    def windows(self) -> Windows:
        return self.tiles.windows

    @property
    def channels(self) -> int:
        """Elements of a line of channels."""
        return up(self.tiles.channels, self.tiles.lanes)

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
        elements = (tiles.copied, FREQUENCIES * tiles.apart(self.channels) + over,
                    self.kept * FREQUENCIES * self.frequency, FREQUENCIES * tiles.apart(panels.width) + over,
                    rows * tiles.lanes, rows * tiles.lanes)
        return tuple(up(n * element_bytes(register(self.statement.sum.dtype)), 64) for n in elements)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(self.parts) + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _Winograd(self, task).emit()


def winograd_plan_of(statement: Contraction, found: Sliding) -> WinogradPlan:
    """How to compute the statement whose windows slide like this."""
    lanes = host().vector_bytes // element_bytes(register(statement.sum.dtype))
    tiles = tiles_of(found.windows, lanes)
    return WinogradPlan(statement, tiles, found.other, found.filters,
                        panels_of(tiles.block, count(found.filters), lanes))


class _Winograd:
    """Writes the loops of a plan."""

    def __init__(self, plan: WinogradPlan, task: Task) -> None:
        self.plan, self.task, self.values, self.b = plan, task, task.values, task.b
        self.element, self.tiles, self.panels = register(plan.statement.sum.dtype), plan.tiles, plan.panels
        self.lanes, self.slides = plan.tiles.lanes, plan.tiles.slides
        copy, elements, self.taps, self.sums, self.inside, self.outside = task.parts(plan.parts)
        self.elements = Elements(task.values, plan.tiles, copy, elements,
                                 Layout(plan.tiles.apart(plan.channels), plan.channels, self.lanes))
        self.store = only_stored(plan.statement.epilogue, plan.statement.sum, self.slides[1].place)
        self.filters = count(plan.filters)

    def emit(self) -> None:
        """All blocks and panels of this thread."""
        b, plan, tiles = self.b, self.plan, self.tiles
        share = self.task.share(tiles.blocks if plan.shares_blocks else plan.count)
        blocks, panels = (share, (ZERO, const(plan.count))) if plan.shares_blocks else \
            ((ZERO, const(tiles.blocks)), share)
        self.first_panel = ZERO if plan.shares_blocks else panels[0]
        with b.if_then(b.icmp_signed("<", *share)):
            self.clear()
            if plan.kept > 1:
                with loop(b, *panels, short=True) as (panel, _):
                    self.transform_taps(panel)
            with loop(b, *blocks, short=True) as (number, _):
                self.block(number, panels)

    def clear(self) -> None:
        """No element is read that nobody wrote: sums of what lies beyond the last tile take no time."""
        b, lanes = self.b, self.lanes
        some = self.panels.rows * self.plan.channels
        for frequency in range(FREQUENCIES):
            start = const(frequency * self.tiles.apart(self.plan.channels))
            with loop(b, ZERO, const(some), const(lanes), short=True) as (k, _):
                store_vector(b, zero(ir.VectorType(self.element, lanes)),
                             address(b, self.elements.target, b.add(start, k), self.element))

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
                know(self.values, self.plan.windows.outside, b.add(block.image, i))
                self.finish(panel, v, i, block)

    # ------------------------------------------------------------ taps

    def panel_at(self, panel: ir.Value, frequency: ir.Value) -> ir.Value:
        """Where the transformed taps of a panel are."""
        b, kept = self.b, ZERO if self.plan.kept == 1 else self.b.sub(panel, self.first_panel)
        number = b.add(b.mul(kept, const(FREQUENCIES)), frequency)
        return address(b, self.taps, b.mul(number, const(self.plan.frequency)), self.element)

    def transform_taps(self, panel: ir.Value) -> None:
        """The taps of all channels for a panel, a vector of filters at a time."""
        b, plan = self.b, self.plan
        load, terms = plan.weights, affine(plan.weights.offset).terms
        nowhere = {index: size(0) for index in (*plan.windows.taps, *plan.windows.channels)}
        where = self.panel_at(panel, ZERO)
        with loop(b, ZERO, const(self.panels.width), const(self.lanes), short=True) as (v, _):
            starts = []
            for k in range(self.lanes):
                number = b.add(b.add(b.mul(panel, const(self.panels.width)), v), const(k))
                know(self.values, plan.filters, minimum(b, number, const(self.filters - 1)))
                starts.append(self.values.address(load.buffer, substitute(load.offset, nowhere)))
            with loop(b, ZERO, const(self.tiles.channels), short=True) as (channel, _):
                know(self.values, plan.windows.channels, channel)
                offset: ir.Value = ZERO
                for index in plan.windows.channels:
                    offset = b.add(offset, b.mul(self.values.known[index], const(int(terms.get(index, 0)))))
                taps = self.loaded(starts, offset)
                target = address(b, where, b.add(b.mul(channel, const(self.panels.width)), v), self.element)
                for y, line in enumerate(both_ways(b, of_taps, taps)):
                    for x, value in enumerate(line):
                        at = const((y * SIDE + x) * plan.frequency)
                        store_vector(b, value, address(b, target, at, self.element))

    def loaded(self, starts: Line, offset: ir.Value) -> list[Line]:
        """The taps of a vector of filters, by where they meet elements: squares of lines that are turned."""
        b, lanes, load = self.b, self.lanes, self.plan.weights
        kind = ir.IntType(16) if load.dtype.bits == 16 else scalar.in_memory(load.dtype)
        columns: Line = []
        for first in range(0, TAPS * TAPS, lanes):
            mask = lanes_below(TAPS * TAPS - first, lanes)
            at = b.add(offset, const(first))
            rows = [masked_load(b, b.gep(start, [at], source_etype=scalar.in_memory(load.dtype)), mask,
                                zero(ir.VectorType(kind, lanes))) for start in starts]
            columns += transpose(b, [widened(b, row, load.dtype, lanes) for row in rows])
        return [[columns[n] for n in line] for line in self.order]

    @cached_property
    def order(self) -> list[list[int]]:
        """Which of a channel's taps meets the element in this row and column of a window."""
        terms = affine(self.plan.weights.offset).terms
        steps = [int(terms[s.tap]) for s in self.slides if s.tap is not None]
        taps = [[k if s.reach > 0 else TAPS - 1 - k for k in range(TAPS)] for s in self.slides]
        return [[y * steps[0] + x * steps[1] for x in taps[1]] for y in taps[0]]

    # ------------------------------------------------------------ products

    def multiply(self, panel: ir.Value, tiles: ir.Value) -> None:
        """The sums of all frequencies; the last tiles of a block may be computed twice, to be a whole register tile."""
        b, plan, panels = self.b, self.plan, self.panels
        none = [zero(ir.VectorType(self.element, self.lanes))] * (panels.rows * panels.vectors)
        last = maximum(b, b.sub(tiles, const(panels.rows)), ZERO)
        with loop(b, ZERO, const(FREQUENCIES), short=True) as (frequency, _):
            right = self.panel_at(panel, frequency)
            left, sums = (address(b, where, b.mul(frequency, const(self.tiles.apart(width))), self.element)
                          for where, width in ((self.elements.target, plan.channels), (self.sums, panels.width)))
            with loop(b, ZERO, tiles, const(panels.rows), short=True) as (tile, _):
                tile = minimum(b, tile, last)
                start = address(b, left, b.mul(tile, const(plan.channels)), self.element)
                found = add_products(b, panels, none, (start, plan.channels, 1), (right, panels.width),
                                     const(self.tiles.channels), self.element)
                target = address(b, sums, b.mul(tile, const(panels.width)), self.element)
                for number, value in enumerate(found):
                    store_vector(b, value, address(b, target, const(number * self.lanes), self.element))

    # ------------------------------------------------------------ results

    def finish(self, panel: ir.Value, v: ir.Value, image: ir.Value, block: Block) -> None:
        """The results of one image for a vector of filters."""
        b, plan, lanes = self.b, self.plan, self.lanes
        with loop(b, ZERO, block.rows, short=True) as (row, _):
            self.transform_sums(row, b.add(b.mul(image, const(self.tiles.rows)), row), v)
        filters = b.add(b.mul(panel, const(self.panels.width)), b.mul(v, const(lanes)))
        some = minimum(b, const(lanes), b.sub(const(self.filters), filters))
        place = b.mul(block.first, const(STEP))
        lines = minimum(b, b.mul(block.rows, const(STEP)), b.sub(const(self.slides[0].places), place))
        self.turn(filters, some, place, lines)
        if self.store is None:
            with loop(b, ZERO, some, short=True) as (k, _):
                know(self.values, plan.filters, b.add(filters, k))
                waiting = address(b, self.outside, b.mul(k, const(STEP * self.tiles.rows * plan.run)), self.element)
                self.task.apart("epilogue", (*plan.windows.outside, *plan.filters), [waiting, place, lines],
                                self.hand_over)

    def transform_sums(self, row: ir.Value, number: ir.Value, v: ir.Value) -> None:
        """A row of tiles, to two rows of results."""
        b, lanes, width = self.b, self.lanes, self.panels.width
        across = const(self.tiles.across)
        with loop(b, ZERO, across, short=True) as (j, _):
            tile = b.add(b.mul(number, across), j)
            where = address(b, self.sums, b.add(b.mul(tile, const(width)), b.mul(v, const(lanes))), self.element)
            square = [[load_vector(b, address(b, where, const((y * SIDE + x) * self.tiles.apart(width)), self.element),
                                   self.element, lanes) for x in range(SIDE)] for y in range(SIDE)]
            corner = b.add(b.mul(row, const(STEP * self.plan.run)), b.mul(j, const(STEP)))
            for y, line in enumerate(both_ways(b, to_sums, square)):
                for x, value in enumerate(line):
                    at = b.mul(b.add(corner, const(y * self.plan.run + x)), const(lanes))
                    store_vector(b, value, address(b, self.inside, at, self.element))

    @cached_property
    def is_flat(self) -> bool:
        """Whether the rows of an image's results follow each other, here and where they go."""
        dense = self.plan.run == self.slides[1].places
        return dense and joined(self.plan.statement.epilogue, [s.place for s in self.slides]) == 2

    def turn(self, filters: ir.Value, some: ir.Value, place: ir.Value, lines: ir.Value) -> None:
        """Squares of results, filter by filter: to where they belong, or where they wait."""
        b, lanes = self.b, self.lanes
        length = const(self.slides[1].places)
        outer, run = (const(1), b.mul(lines, length)) if self.is_flat else (lines, length)
        with loop(b, ZERO, outer, short=True) as (line, _):
            targets = [self.target(filters, k, b.add(place, line), line) for k in range(lanes)]
            start = address(b, self.inside, b.mul(line, const(self.plan.run * lanes)), self.element)
            here = b.trunc(b.sub(run, b.mul(b.udiv(b.sub(run, const(1)), const(lanes)), const(lanes))), I32)
            last = between(b, ir.Constant(I32, 0), here, lanes)
            with loop(b, ZERO, run, const(lanes), short=True) as (x, _):
                square = [load_vector(b, address(b, start, b.mul(b.add(x, const(k)), const(lanes)), self.element),
                                      self.element, lanes) for k in range(lanes)]
                ends = b.icmp_signed(">=", b.add(x, const(lanes)), run)
                mask = b.select(ends, last, lanes_below(lanes, lanes))
                for k, value in enumerate(transpose(b, square)):
                    exists = b.select(b.icmp_signed("<", const(k), some), mask, lanes_below(0, lanes))
                    masked_store(b, value, address(b, targets[k], x, self.element), exists)

    def target(self, filters: ir.Value, k: int, place: ir.Value, line: ir.Value) -> ir.Value:
        """Where a row of results of a filter goes."""
        b = self.b
        if self.store is None:
            at = b.add(const(k * STEP * self.tiles.rows * self.plan.run), b.mul(line, const(self.slides[1].places)))
            return address(b, self.outside, at, self.element)
        know(self.values, self.plan.filters, minimum(b, b.add(filters, const(k)), const(self.filters - 1)))
        self.values.known.update({self.slides[0].place: place, self.slides[1].place: ZERO})
        return self.values.address(self.store.buffer, self.store.offset)

    def hand_over(self, values: Values, given: Sequence[ir.Value]) -> None:
        """The epilogue for the results of a filter: where they wait, the first line, how many; in long runs."""
        (waiting, place, lines), b = given, values.b
        statement, (down, across) = self.plan.statement, self.slides
        length = const(across.places)
        outer, run = (const(1), b.mul(lines, length)) if self.is_flat else (lines, length)
        with loop(b, ZERO, outer, short=True) as (line, _):
            start = address(b, waiting, b.mul(line, length), self.element)
            values.known[down.place] = b.add(place, line)
            with loop(b, ZERO, run) as (x, _):
                values.known[across.place] = x
                values.known[statement.sum] = b.load(address(b, start, x, self.element), typ=self.element)
                values.block(statement.epilogue)
