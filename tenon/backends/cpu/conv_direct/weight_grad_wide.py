"""The weight gradient of a convolution with many filters -> LLVM IR that sums over all places of windows.

    for each block of images or rows:
        put the other factor, of all filters, together as panels: a line of filters for every place
        for each few channels:
            copy what their windows cover, with zeros around it
            for panels, tiles of taps: for places: sums += element of the copy * line of the panel

Windows are not put together as rows: each tap reads the copy at a distance that is known here.  Sums wait in memory, a
line of filters for each channel and tap, and are transposed in squares at last.  Threads share channels, or panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from itertools import product as combinations
from math import prod

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    address,
    const,
    element_bytes,
    load_vector,
    loop,
    maximum,
    minimum,
    multiply_add,
    splat,
    store_vector,
    zero,
)
from tenon.backends.cpu.contraction.transpose_registers import addresses, from_lines, to_lines
from tenon.backends.cpu.conv_direct.padded_copy import Cover, bind_indices
from tenon.backends.cpu.conv_direct.work_share import FMA_LATENCY_CYCLES, Task, finish_taps
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import POINTER, register
from tenon.llvm import shared_functions
from tenon.loops.affine import affine
from tenon.loops.expressions import Load
from tenon.loops.loop_ir import Contraction
from tenon.loops.select_conv_schedule import Sliding
from tenon.loops.window_access import Axis, Windows, count
from tenon.records import dataclass, replace
from tenon.target import Target, round_up

BLOCK_PLACES = 768      # of a block, about: their lines of a panel stay in the second cache
WORKING_REGISTERS = 5   # registers that hold no sums
TRANSPOSED_RUN = 256    # sums of a filter that are transposed at once, a multiple of all lanes


@dataclass(frozen=True)
class FilterPlan:
    """How a statement is computed: `together` channels x `taps` x `vectors` of filters are the sums of a tile.

    A block is some `images` (places that nothing slides along), or of one image a `block` of the first slide.
    """

    statement: Contraction
    windows: Windows
    other: Load
    filters: Axis
    lanes: int
    together: int
    taps: int
    vectors: int
    images: int
    block: int

    @property
    def cover(self) -> Cover:
        """Of one channel of one image."""
        places = [s.places for s in self.windows.slides]
        return Cover(self.windows, (self.block, *places[1:]), self.lanes)

    @property
    def width(self) -> int:
        """Filters of a panel."""
        return self.vectors * self.lanes

    @property
    def panels(self) -> int:
        return -(-count(self.filters) // self.width)

    @property
    def last_width(self) -> int:
        """Filters of the last panel, up to half a vector."""
        return round_up(count(self.filters) - (self.panels - 1) * self.width, self.lanes // 2)

    @property
    def all_taps(self) -> int:
        return prod(s.taps for s in self.windows.slides)

    @property
    def channel_blocks(self) -> int:
        return -(-count(self.windows.channels) // self.together)

    @property
    def is_one_block(self) -> bool:
        """Whether sums are done when a block is, so that those of some channels at a time wait in memory."""
        return self.images >= count(self.windows.outside) and self.block >= self.windows.slides[0].places

    @property
    def shares_channels(self) -> bool:
        """Whether threads share channels, and not panels."""
        return self.channel_blocks >= min(self.panels, 8)

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """Bytes of panels, of copies, of sums, of sums that are transposed."""
        each = element_bytes(register(self.statement.sum.dtype))
        places = self.images * self.block * prod(s.places for s in self.windows.slides[1:])
        blocks = min(self.channel_blocks, self.lanes) if self.is_one_block else self.channel_blocks
        rows = round_up(blocks * self.together * self.all_taps, self.lanes) + self.lanes
        sizes = (self.panels * (places + self.lanes) * self.width, self.images * self.together * self.cover.elements,
                 rows * self.panels * self.width, self.lanes * TRANSPOSED_RUN)
        panels, copies, sums, transposed = (round_up(size * each, 64) for size in sizes)
        return panels, copies, sums, transposed

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(self.parts) + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _SlidingFilters(self, task).emit()


def filter_plan_of(statement: Contraction, found: Sliding, machine: Target) -> FilterPlan:
    """How to compute the statement whose windows slide like this."""
    windows = found.windows
    lanes = machine.vector_bytes // element_bytes(register(statement.sum.dtype))
    tile = _tile(count(windows.channels), prod(s.taps for s in windows.slides), count(found.filters), lanes,
                 machine.registers - WORKING_REGISTERS)
    first, rest = windows.slides[0].places, prod(s.places for s in windows.slides[1:])
    images = min(max(BLOCK_PLACES // (first * rest), 1), count(windows.outside))
    block = first if images > 1 or first * rest <= 2 * BLOCK_PLACES else max(BLOCK_PLACES // rest, 1)
    plan = FilterPlan(statement, windows, found.other, found.filters, lanes, *tile, images, block)
    return replace(plan, block=-(-first // -(-first // block)))


def _tile(channels: int, taps: int, filters: int, lanes: int, registers: int) -> tuple[int, int, int]:
    """(channels, taps, vectors) of the tile that takes least time for all sums."""
    chunks = {-(-taps // n) for n in range(1, taps + 1)}
    found = []
    for together, chunk, vectors in combinations(range(1, 9), chunks, range(1, 5)):
        rows = together * chunk
        if rows * vectors + vectors > registers or (together > 1 and chunk < taps) or together > channels:
            continue
        step = max(rows * vectors / 2, FMA_LATENCY_CYCLES, (rows + vectors) / 2)
        iterations = -(-channels // together) * -(-taps // chunk) * -(-filters // (vectors * lanes))
        found.append((step * iterations, -rows * vectors, (together, chunk, vectors)))
    return min(found)[2]


class _SlidingFilters:
    """Writes the loops of a plan."""

    def __init__(self, plan: FilterPlan, task: Task) -> None:
        self.plan, self.task, self.values, self.b = plan, task, task.values, task.b
        self.element, self.slides = register(plan.statement.sum.dtype), plan.windows.slides
        self.cover, self.taps = plan.cover, list(combinations(*(range(s.taps) for s in plan.windows.slides)))
        self.panels, self.copies, self.sums, self.transposed_sums = task.parts(plan.parts)
        self.slots = addresses(task.b, plan.lanes)
        self.pitch = plan.panels * plan.width       # elements between sums of neighbouring taps
        terms = affine(plan.other.offset).terms
        self.is_flat = all(terms.get(a.place, 0) == terms.get(c.place, 0) * c.places
                           for a, c in pairwise(self.slides))

    def emit(self) -> None:
        """All blocks, then the results, of each batch."""
        b, plan = self.b, self.plan
        units = plan.channel_blocks if plan.shares_channels else plan.panels
        everything = ZERO, const(plan.panels if plan.shares_channels else plan.channel_blocks)
        images, first = const(count(plan.windows.outside)), const(self.slides[0].places)
        with self.task.batches(plan.statement.batch, units) as own:
            self.own_channels, self.own_panels = (own, everything) if plan.shares_channels else (everything, own)
            self.row = b.mul(self.own_channels[0], const(plan.together * plan.all_taps))    # whose sum waits first
            with loop(b, ZERO, images, const(plan.images), short=True) as (image, _), \
                    loop(b, ZERO, first, const(plan.block), short=True) as (place, _):
                self.image, self.first = image, place
                self.some_images = minimum(b, const(plan.images), b.sub(images, image))
                self.counts = [minimum(b, const(plan.block), b.sub(first, place)),
                               *(const(s.places) for s in self.slides[1:])]
                self.block()
            if not plan.is_one_block:
                self.finish(*self.own_channels)

    def block(self) -> None:
        """Add what the places of a block have to all sums; if there is no other block, these are done."""
        b, plan = self.b, self.plan
        with loop(b, *self.own_panels, short=True) as (panel, _), \
                loop(b, ZERO, const(plan.vectors), short=True) as (v, _):
            self.pack(panel, v)
        start, stop = self.own_channels
        if not plan.is_one_block:
            self.channels(start, stop)
            return
        with loop(b, start, stop, const(plan.lanes), short=True) as (some, _):
            self.row = b.mul(some, const(plan.together * plan.all_taps))
            end = minimum(b, b.add(some, const(plan.lanes)), stop)
            self.channels(some, end)
            self.finish(some, end)

    def channels(self, start: ir.Value, stop: ir.Value) -> None:
        """Add what the places of a block have to the sums of some blocks of channels."""
        b, plan = self.b, self.plan
        with loop(b, start, stop, short=True) as (number, _):
            channel = b.mul(number, const(plan.together))
            end = minimum(b, b.add(channel, const(plan.together)), const(count(plan.windows.channels)))
            with loop(b, ZERO, self.some_images, short=True) as (i, _):
                bind_indices(self.values, plan.windows.outside, b.add(self.image, i))
                self.cover.emit(self.values, self.copy_of(i), self.first, (channel, end))
            self.products(channel)

    def products(self, channel: ir.Value) -> None:
        """Add to the sums of some channels for all panels, the last of which may be narrower."""
        b, plan, (start, stop), last = self.b, self.plan, self.own_panels, const(self.plan.panels - 1)
        parts = [(start, minimum(b, stop, last), plan.width), (maximum(b, start, last), stop, plan.last_width)]
        for first, end, width in parts if plan.last_width < plan.width else [(start, stop, plan.width)]:
            with loop(b, first, end, short=True) as (panel, _):
                for tap in range(0, plan.all_taps, plan.taps):
                    self.tile(channel, panel, range(tap, min(tap + plan.taps, plan.all_taps)), width)

    def copy_of(self, image: ir.Value) -> ir.Value:
        """Where the copies of an image of the block are."""
        return address(self.b, self.copies, self.b.mul(image, const(self.plan.together * self.cover.elements)),
                       self.element)

    def panel_at(self, panel: ir.Value, line: ir.Value) -> ir.Value:
        """Where a line of a panel is."""
        plan, b = self.plan, self.b
        lines = plan.images * plan.block * prod(s.places for s in self.slides[1:]) + plan.lanes
        return address(b, self.panels, b.mul(b.add(b.mul(panel, const(lines)), line), const(plan.width)), self.element)

    # ------------------------------------------------------------ the other factor

    def pack(self, panel: ir.Value, v: ir.Value) -> None:
        """Vector v of a panel's filters for all places of the block: squares that are transposed.

        The last square of a run goes over its end; what comes after is written later, or is room for it.
        """
        b, plan = self.b, self.plan
        outer, run = ([], self.counts[0]) if self.is_flat else (self.counts[:-1], self.counts[-1])
        for n in self.counts[1:] if self.is_flat else []:
            run = b.mul(run, n)
        first = b.add(b.mul(panel, const(plan.width)), b.mul(v, const(plan.lanes)))
        with loop(b, ZERO, self.some_images, short=True) as (i, _):
            bind_indices(self.values, plan.windows.outside, b.add(self.image, i))

            def over(places: list[ir.Value], number: ir.Value) -> None:
                if len(places) < len(outer):
                    with loop(b, ZERO, outer[len(places)], short=True) as (place, _):
                        over([*places, place], b.add(b.mul(number, outer[len(places)]), place))
                    return
                known = [*places, *[ZERO] * (len(self.slides) - len(places))]
                self.transposed(first, known, run, self.panel_at(panel, b.mul(number, run)), v)
            over([], i)

    def transposed(self, first: ir.Value, places: list[ir.Value], run: ir.Value, panel: ir.Value, v: ir.Value) -> None:
        """A run of places, for a vector of filters from `first` on."""
        b, plan, lanes = self.b, self.plan, self.plan.lanes
        for slide, place in zip(self.slides, places, strict=True):
            self.values.known[slide.place] = place
        self.values.known[self.slides[0].place] = b.add(places[0], self.first)
        with loop(b, ZERO, const(lanes), short=True) as (k, _):
            bind_indices(self.values, plan.filters, minimum(b, b.add(first, k), const(count(plan.filters) - 1)))
            b.store(self.values.address(plan.other.buffer, plan.other.offset), address(b, self.slots, k, POINTER))
        target = address(b, panel, b.mul(v, const(lanes)), self.element)
        shared_functions.call(b, from_lines, (plan.other.dtype, lanes), [self.slots, target, run, const(plan.width)])

    # ------------------------------------------------------------ sums

    def tile(self, channel: ir.Value, panel: ir.Value, taps: range, width: int) -> None:
        """Add to the sums of some channels and taps for one panel, or so many filters of it, in halves of vectors."""
        b, plan = self.b, self.plan
        vectors = [(v, min(plan.lanes, width - v)) for v in range(0, width, plan.lanes)]
        rows = [(c, tap) for c in range(plan.together) for tap in taps]
        at = [c * self.cover.elements + self.cover.place(self.taps[tap]) for c, tap in rows]
        column = b.mul(panel, const(plan.width))
        where = []
        for (c, tap), (v, lanes) in combinations(rows, vectors):
            row = b.add(b.mul(b.add(channel, const(c)), const(plan.all_taps)), const(tap))
            where.append((self.sum_at(row, b.add(column, const(v))), lanes))
        begins = b.and_(b.icmp_signed("==", self.image, ZERO), b.icmp_signed("==", self.first, ZERO))
        state = [b.select(begins, zero(ir.VectorType(self.element, lanes)), load_vector(b, place, self.element, lanes))
                 for place, lanes in where]

        def over(places: list[ir.Value], number: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            """The sums with what all places have, given the image and the first of them, the number of all of these."""
            if len(places) < len(self.slides):
                extent = self.counts[len(places) - 1]
                with loop(b, ZERO, extent, carried=sums, short=True) as (place, inner):
                    inner[:] = over([*places, place], b.add(b.mul(number, extent), place), inner)
                return inner
            start = self.cover.start(b, [*places[1:], ZERO])
            copy = address(b, self.copy_of(places[0]), start, self.element)
            line = self.panel_at(panel, b.mul(number, self.counts[-1]))
            with loop(b, ZERO, self.counts[-1], carried=sums, short=True) as (x, inner):
                inner[:] = self.added(inner, address(b, copy, x, self.element),
                                      address(b, line, b.mul(x, const(plan.width)), self.element), at, vectors)
            return inner

        with loop(b, ZERO, self.some_images, carried=state, short=True) as (image, sums):
            sums[:] = over([image], image, sums)
        for (place, _), value in zip(where, sums, strict=True):
            store_vector(b, value, place)

    def sum_at(self, row: ir.Value, column: ir.Value) -> ir.Value:
        """Where the sum of a channel and tap waits for a filter."""
        b = self.b
        return address(b, self.sums, b.add(b.mul(b.sub(row, self.row), const(self.pitch)), column), self.element)

    def added(self, sums: Sequence[ir.Value], copy: ir.Value, line: ir.Value, at: Sequence[int],
              vectors: Sequence[tuple[int, int]]) -> list[ir.Value]:
        """The sums with the products of one place."""
        b, found = self.b, list(sums)
        lines = [load_vector(b, address(b, line, const(v), self.element), self.element, lanes) for v, lanes in vectors]
        for k, offset in enumerate(at):
            factor = b.load(address(b, copy, const(offset), self.element), typ=self.element)
            for v, other in enumerate(lines):
                number = k * len(lines) + v
                found[number] = multiply_add(b, splat(b, factor, vectors[v][1]), other, found[number])
        return found

    # ------------------------------------------------------------ results

    def finish(self, start: ir.Value, stop: ir.Value) -> None:
        """Hand sums of blocks of channels to the epilogue: transposed, so that taps lie side by side."""
        b, plan, lanes = self.b, self.plan, const(self.plan.lanes)
        rows = [b.mul(x, const(plan.together * plan.all_taps)) for x in (start, stop)]
        end = minimum(b, rows[1], const(count(plan.windows.channels) * plan.all_taps))
        filters = [b.mul(x, const(plan.width)) for x in self.own_panels]
        last = minimum(b, filters[1], const(count(plan.filters)))
        with loop(b, filters[0], last, lanes, short=True) as (f, _), \
                loop(b, rows[0], end, const(TRANSPOSED_RUN), short=True) as (r, _):
            run, some = minimum(b, const(TRANSPOSED_RUN), b.sub(end, r)), minimum(b, lanes, b.sub(last, f))
            with loop(b, ZERO, lanes, short=True) as (k, _):
                b.store(self.line(k), address(b, self.slots, k, POINTER))
            shared_functions.call(b, to_lines, (self.element, plan.lanes), [
                self.slots, self.sum_at(r, f), run, const(self.pitch), some])
            with loop(b, ZERO, some, short=True) as (k, _):
                bind_indices(self.values, plan.filters, b.add(f, k))
                self.task.apart("epilogue", (*plan.statement.batch, *plan.filters), [self.line(k), r, run],
                                self.hand_over)

    def line(self, number: ir.Value) -> ir.Value:
        """Where a run of sums of one filter waits."""
        return address(self.b, self.transposed_sums, self.b.mul(number, const(TRANSPOSED_RUN)), self.element)

    def hand_over(self, values: Values, given: Sequence[ir.Value]) -> None:
        """The epilogue for some sums of a filter."""
        finish_taps(values, self.plan.statement, self.plan.windows, *given)
