"""Windows of 3 x 3 and constant weights -> LLVM IR that makes 16 products of matrices of them, channels last.

    for each block of tiles: transform what they cover, a line of channels for each frequency and tile
        for each panel of filters
            for frequencies: for tiles x vectors of filters: for channels: sums += element * vector of weights
            for tiles: transform the sums to those of 2 x 2 places, of which each is a vector of filters: epilogue

The taps were transformed when they were packed.  Neither elements nor sums have to be transposed, as they have where
channels are not last (`backends.cpu.conv_direct.winograd.winograd_forward`);
`backends.cpu.conv_direct.winograd.winograd_transforms` says what the transforms are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    address,
    between,
    const,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    maximum,
    minimum,
    prefetch,
    store_vector,
    zero,
)
from tenon.backends.cpu.contraction.memset import fill
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.conv_direct.winograd.winograd_blocking import STEP, add_products
from tenon.backends.cpu.conv_direct.winograd.winograd_transforms import (
    SQUARE,
    Line,
    both_ways,
    of_elements,
    of_taps,
    to_sums,
)
from tenon.backends.cpu.conv_direct.work_share import Task
from tenon.backends.cpu.conv_nhwc.vector_epilogue import Lanes
from tenon.backends.cpu.conv_nhwc.winograd_plan import CHANNELS_PER_PREFETCH, FREQUENCIES, SIDE, TAPS, WinogradPlan
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import I32, register
from tenon.target import LINE_BYTES


class Winograd:
    """Writes the loops of a plan for one thread's share; `weights` are what `transform_taps` has packed."""

    def __init__(self, plan: WinogradPlan, task: Task, weights: ir.Value) -> None:
        self.plan, self.task, self.values, self.b, self.weights = plan, task, task.values, task.b, weights
        self.element, self.panels, self.lanes = register(plan.statement.sum.dtype), plan.panels, plan.panels.lanes
        self.down, self.across = (const(-(-slide.places // STEP)) for slide in plan.slides)
        self.elements, self.sums, self.zeros = task.parts(plan.parts)

    def emit(self) -> None:
        """All tasks of this thread: a panel of a block each."""
        b, plan = self.b, self.plan
        start, stop = self.task.share(plan.blocks * plan.count)
        with b.if_then(b.icmp_signed("<", start, stop)):
            self.clear()
        with loop(b, start, stop, short=True) as (number, _):
            panel, block = b.urem(number, const(plan.count)), b.udiv(number, const(plan.count))
            first = b.mul(block, const(plan.block))
            tiles = minimum(b, const(plan.block), b.sub(const(plan.tiles), first))
            with b.if_then(b.or_(b.icmp_signed("==", number, start), b.icmp_signed("==", panel, ZERO))), \
                    loop(b, ZERO, tiles, short=True) as (tile, _):
                self.transform(b.add(first, tile), address(b, self.elements, b.mul(tile, const(plan.line)),
                                                           self.element))
            self.multiply(panel, tiles)
            with loop(b, ZERO, tiles, short=True) as (tile, _):
                self.finish(panel, b.add(first, tile), address(
                    b, self.sums, b.mul(tile, const(self.panels.width)), self.element))

    def clear(self) -> None:
        """The line of zeros."""
        fill(self.b, self.element, self.lanes, self.zeros, const(self.plan.line))

    def place(self, tile: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where a tile begins in its image, which is made known."""
        b = self.b
        line = b.udiv(tile, self.across)
        bind_indices(self.values, self.plan.windows.outside, b.udiv(line, self.down))
        return b.mul(b.urem(line, self.down), const(STEP)), b.mul(b.urem(tile, self.across), const(STEP))

    # ------------------------------------------------------------ elements

    def transform(self, tile: ir.Value, target: ir.Value) -> None:
        """The elements that a tile covers, for each frequency a line of channels."""
        b, plan, lanes = self.b, self.plan, self.lanes
        sources = self.covered(tile)

        def vectors(channel: ir.Value, mask: ir.Value | None) -> None:
            square = [[self.loaded(address(b, source, channel, self.element), mask) for source in line]
                      for line in sources]
            for y, line in enumerate(both_ways(b, of_elements, SQUARE, square)):
                for x, value in enumerate(line):
                    at = b.add(channel, const((y * SIDE + x) * plan.rows * plan.line))
                    store_vector(b, value, address(b, target, at, self.element))

        whole = plan.channels // lanes * lanes
        with loop(b, ZERO, const(whole), const(lanes), short=True) as (channel, _):
            vectors(channel, None)
        if whole < plan.channels:
            vectors(const(whole), lanes_below(plan.channels - whole, lanes))

    def covered(self, tile: ir.Value) -> list[Line]:
        """Where the lines of channels are that a tile covers, or zeros, row after row."""
        b, windows = self.b, self.plan.windows
        start = self.place(tile)
        self.values.known.update(dict.fromkeys(windows.channels, ZERO))
        base = self.values.address(windows.load.buffer, windows.base)
        axes = []
        for slide, place in zip(self.plan.slides, start, strict=True):
            coordinates = [b.add(place, const(k + slide.shift)) for k in range(SIDE)]
            axes.append([(b.mul(u, const(slide.stride)), b.and_(
                b.icmp_signed(">=", u, const(slide.low)), b.icmp_signed("<", u, const(slide.high))))
                for u in coordinates])
        return [[b.select(b.and_(some, valid), address(b, base, b.add(row, column), self.element), self.zeros)
                 for column, valid in axes[1]] for row, some in axes[0]]

    def loaded(self, where: ir.Value, mask: ir.Value | None) -> ir.Value:
        if mask is None:
            return load_vector(self.b, where, self.element, self.lanes)
        return masked_load(self.b, where, mask, zero(ir.VectorType(self.element, self.lanes)))

    # ------------------------------------------------------------ products

    def multiply(self, panel: ir.Value, tiles: ir.Value) -> None:
        """The sums of all frequencies; the last tiles of a block may be computed twice, to be a whole register tile."""
        b, plan, panels = self.b, self.plan, self.panels
        last = maximum(b, b.sub(tiles, const(panels.rows)), ZERO)
        with loop(b, ZERO, const(FREQUENCIES), short=True) as (frequency, _):
            number = b.add(b.mul(panel, const(FREQUENCIES)), frequency)
            right = address(b, self.weights, b.mul(number, const(plan.frequency)), self.element)
            line = b.mul(frequency, const(plan.rows))
            with loop(b, ZERO, tiles, const(panels.rows), short=True) as (first, _):
                at = b.add(line, minimum(b, first, last))
                left = address(b, self.elements, b.mul(at, const(plan.line)), self.element)
                target = address(b, self.sums, b.mul(at, const(panels.width)), self.element)
                for k, value in enumerate(self.added(left, right, b.udiv(first, const(panels.rows)))):
                    store_vector(b, value, address(b, target, const(k * self.lanes), self.element))

    def added(self, left: ir.Value, right: ir.Value, number: ir.Value) -> Line:
        """The sums of the register tile of this number, which fetches its share of the next frequency's weights."""
        b, plan, panels = self.b, self.plan, self.panels
        none = [zero(ir.VectorType(self.element, self.lanes))] * (panels.rows * panels.vectors)
        each = -(-plan.channels // CHANNELS_PER_PREFETCH) * plan.fetched * LINE_BYTES
        ahead = b.gep(right, [b.add(const(plan.frequency * plan.size), b.mul(number, const(each)))],
                      source_etype=ir.IntType(8))
        with loop(b, ZERO, const(plan.channels), const(CHANNELS_PER_PREFETCH), none, short=True) as (k, sums):
            first = b.mul(b.udiv(k, const(CHANNELS_PER_PREFETCH)), const(plan.fetched * LINE_BYTES))
            for line in range(plan.fetched):
                prefetch(b, b.gep(ahead, [b.add(first, const(line * LINE_BYTES))], source_etype=ir.IntType(8)), 2)
            steps = const(CHANNELS_PER_PREFETCH) if plan.channels % CHANNELS_PER_PREFETCH == 0 else \
                minimum(b, const(CHANNELS_PER_PREFETCH), b.sub(const(plan.channels), k))
            sums[:] = add_products(b, panels, list(sums), (address(b, left, k, self.element), plan.line, 1),
                                   (address(b, right, b.mul(k, const(panels.width)), self.element), panels.width),
                                   steps, self.element)
        return sums

    # ------------------------------------------------------------ results

    def finish(self, panel: ir.Value, tile: ir.Value, sums: ir.Value) -> None:
        """The results of a tile for a panel of filters; those behind the last place are dropped."""
        b, plan, lanes = self.b, self.plan, self.lanes
        places = [slide.place for slide in plan.slides]
        self.values.known.update(zip(places, self.place(tile), strict=True))
        column, begin = plan.statement.columns[-1], b.mul(panel, const(self.panels.width))
        self.values.known[column] = begin
        rest = b.trunc(b.sub(const(plan.filters), begin), I32)
        epilogue = Lanes(self.values, plan.statement, lanes)
        for v in range(self.panels.vectors):
            mask = between(b, ir.Constant(I32, 0), rest, lanes, v * lanes) if plan.filters % self.panels.width else None
            square = [[load_vector(b, address(b, sums, const(
                (y * SIDE + x) * plan.rows * self.panels.width + v * lanes), self.element), self.element, lanes)
                for x in range(SIDE)] for y in range(SIDE)]
            found = both_ways(b, to_sums, SQUARE, square)
            for y, x in product(range(STEP), repeat=2):
                with self.where_there_is([y, x]):
                    epilogue.finish(found[y][x], {places[0]: y, places[1]: x, column: v * lanes}, mask)

    @contextmanager
    def where_there_is(self, place: Sequence[int]) -> Iterator[None]:
        """Only for tiles that have a place so far from their first."""
        b, conditions = self.b, []
        for slide, by in zip(self.plan.slides, place, strict=True):
            if by and slide.places % STEP:
                conditions.append(b.icmp_signed("<", self.values.known[slide.place], const(slide.places - by)))
        if not conditions:
            yield
            return
        with b.if_then(conditions[0] if len(conditions) == 1 else b.and_(*conditions)):
            yield


# ---------------------------------------------------------------- its weights

def transform_taps(plan: WinogradPlan, task: Task, packed: ir.Value) -> None:
    """Pack this thread's panels: for each frequency and channel a line of filters; behind the last one are zeros."""
    b, values, panels, statement = task.b, task.values, plan.panels, plan.statement
    element = register(statement.sum.dtype)
    with loop(b, *task.share(plan.count), short=True) as (panel, _), \
            loop(b, ZERO, const(panels.width), short=True) as (lane, _), \
            loop(b, ZERO, const(plan.channels), short=True) as (channel, _):
        at = b.add(b.mul(panel, const(panels.width)), lane)
        some = b.icmp_signed("<", at, const(plan.filters))
        values.known[statement.columns[-1]] = b.select(some, at, ZERO)
        bind_indices(values, plan.windows.channels, channel)
        line = b.add(b.mul(b.mul(panel, const(FREQUENCIES)), const(plan.frequency)),
                     b.add(b.mul(channel, const(panels.width)), lane))
        for number, value in enumerate(x for y in both_ways(b, of_taps, SQUARE, _taps(plan, values)) for x in y):
            where = address(b, packed, b.add(line, const(number * plan.frequency)), element)
            b.store(b.select(some, value, ir.Constant(element, 0)), where)


def _taps(plan: WinogradPlan, values: Values) -> list[Line]:
    """The taps of one filter and channel."""
    found: list[Line] = []
    for y in range(TAPS):
        found.append([])
        for x in range(TAPS):
            values.known.update(zip(plan.windows.taps, (const(y), const(x)), strict=True))
            found[-1].append(values.value(plan.statement.right))
    return found
