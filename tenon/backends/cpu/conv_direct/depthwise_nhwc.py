"""A depthwise convolution, channels last -> LLVM IR whose lanes are channels.

    for images, places of the outer axes, vectors of channels: for tiles of a row:
        for taps of the outer axes that meet a line of the image: for taps of a row: sums += vector of weights * vector

The image is read where it lies.  Of what lies beyond its edges, lines are left out by the bounds of loops, and elements
of a row while the code is written: the tiles at both ends of a row have code of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    State,
    address,
    between,
    const,
    element_bytes,
    load_vector,
    loop,
    masked_load,
    maximum,
    minimum,
    multiply_add,
    store_vector,
    zero,
)
from tenon.backends.cpu.contraction.machine_model import FMA_LATENCY, FMA_UNITS, TILE_START, shares
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.conv_direct.work_share import Task
from tenon.backends.cpu.conv_nhwc.vector_epilogue import Lanes, is_of_vectors
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import I32, register
from tenon.locks import cached_property
from tenon.loops.affine import affine
from tenon.loops.expressions import Index, Load, size
from tenon.loops.loop_ir import Contraction
from tenon.loops.select_conv_schedule import Sliding
from tenon.loops.simplify_expressions import substitute
from tenon.loops.window_access import Slide, Windows, count
from tenon.records import dataclass
from tenon.target import Target, round_up

WORKING_REGISTERS = 3   # registers that hold neither sums nor weights
MAX_TILE_PLACES = 28    # places of a tile


@dataclass(frozen=True)
class ChannelPlan:
    """How a statement is computed: `places` of a row x `vectors` of channels are the sums of a tile."""

    statement: Contraction
    windows: Windows
    weights: Load
    lanes: int
    places: int
    vectors: int

    @property
    def channel(self) -> Index:
        return self.statement.batch[-1]

    @property
    def width(self) -> int:
        """Channels of a tile."""
        return self.vectors * self.lanes

    @property
    def row(self) -> Slide:
        return self.windows.slides[-1]

    @property
    def outer(self) -> tuple[Slide, ...]:
        """The slides around a row."""
        return self.windows.slides[:-1]

    @property
    def tiles(self) -> list[tuple[range, int]]:
        """(first places, places) of tiles that have the same code: those beside each other that need no zeros."""
        found: list[tuple[range, int]] = []
        first, whole = 0, self.row.whole
        for places, times in shares(self.row.places, self.places):
            starts = range(first, first + places * times, places)
            first = starts.stop
            inner = [x for x in starts if x >= whole.start and x + places <= whole.stop]
            found += [(range(x, x + 1), places) for x in starts if x < min(inner, default=first)]
            found += [(range(inner[0], inner[-1] + places, places), places)] if inner else []
            found += [(range(x, x + 1), places) for x in starts if x > max(inner, default=first)]
        return found

    @property
    def waiting(self) -> int:
        """Bytes of a row of sums that wait for an epilogue in loops."""
        channels = round_up(count((self.channel,)), self.width)
        size_of = element_bytes(register(self.statement.sum.dtype))
        return 0 if is_of_vectors(self.statement) else round_up(self.row.places * channels * size_of, 64)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return self.waiting + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _Channels(self, task).emit()


def channel_plan_of(statement: Contraction, found: Sliding, machine: Target) -> ChannelPlan:
    """How to compute the statement whose windows slide like this."""
    windows = found.windows
    lanes = machine.vector_bytes // element_bytes(register(statement.sum.dtype))
    tile = best_tile(windows.slides[-1], -(-count(statement.batch[-1:]) // lanes), machine.registers)
    return ChannelPlan(statement, windows, found.other, lanes, *tile)


def best_tile(row: Slide, vectors: int, registers: int) -> tuple[int, int]:
    """The (places, vectors) of the tile that takes least time: its multiply-adds, its loads, or waiting for sums."""
    def cost(places: int, v: int) -> float:
        sums, loads = places * row.taps * v, (row.covered(places) + row.taps) * v
        return max(sums / FMA_UNITS, FMA_LATENCY * row.taps, loads / FMA_UNITS) + TILE_START / 2

    found = []
    for places, v in combinations(range(1, min(row.places, MAX_TILE_PLACES) + 1), range(1, min(vectors, 4) + 1)):
        if places * v + min(row.taps, 4) * v + WORKING_REGISTERS > registers and places * v > 1:
            continue
        time = sum(times * cost(size_, v) for size_, times in shares(row.places, places))
        found.append((time * -(-vectors // v), -places * v, (places, v)))
    return min(found)[2]


class _Channels:
    """Writes the loops of a plan."""

    def __init__(self, plan: ChannelPlan, task: Task) -> None:
        self.plan, self.task, self.values, self.b = plan, task, task.values, task.b
        self.element, self.lanes, self.row = register(plan.statement.sum.dtype), plan.lanes, plan.row
        (self.waiting,) = task.parts([plan.waiting])
        self.terms = affine(plan.weights.offset).terms
        self.channels = count((plan.channel,))

    def emit(self) -> None:
        """All rows of results of this thread."""
        b, plan, statement = self.b, self.plan, self.plan.statement
        outside, places = (*statement.batch[:-1], *plan.windows.outside), [slide.place for slide in plan.outer]
        rows = count(tuple(places))
        with loop(b, *self.task.share(count(outside) * rows), short=True) as (number, _):
            bind_indices(self.values, outside, b.udiv(number, const(rows)))
            bind_indices(self.values, tuple(places), b.urem(number, const(rows)))
            with loop(b, ZERO, const(self.channels), const(plan.width), short=True) as (channel, _):
                self.channels_of_row(channel)
            if not self.has_vectors:
                known = (*outside, *places)
                self.task.apart("epilogue", known, [self.waiting], self.hand_over)

    @cached_property
    def has_vectors(self) -> bool:
        """Whether the epilogue is computed on registers."""
        return is_of_vectors(self.plan.statement)

    def channels_of_row(self, channel: ir.Value) -> None:
        """All results of a row for a few vectors of channels."""
        b, plan = self.b, self.plan
        self.values.known[plan.channel] = channel
        self.image = self.values.address(plan.windows.load.buffer, plan.windows.base)
        nowhere = {tap: size(0) for tap in plan.windows.taps}
        self.weights = self.values.address(plan.weights.buffer, substitute(plan.weights.offset, nowhere))
        self.limits = [self.lines(slide) for slide in plan.outer]
        self.masks: list[ir.Value | None] = [None] * plan.vectors
        if self.channels % plan.width:
            rest = b.trunc(b.sub(const(self.channels), channel), I32)
            self.masks = [between(b, ir.Constant(I32, 0), rest, self.lanes, v * self.lanes)
                          for v in range(plan.vectors)]
        for starts, places in plan.tiles:
            if len(starts) == 1:
                self.tile(const(starts.start), places, starts.start)
                continue
            with loop(b, const(starts.start), const(starts.stop), const(starts.step), short=True) as (place, _):
                self.tile(place, places, None)

    def lines(self, slide: Slide) -> tuple[ir.Value, ir.Value]:
        """The taps of an outer axis that meet the image, from and to, at the place that is known."""
        b, begin = self.b, self.b.add(self.b.mul(self.values.known[slide.place], const(slide.step)), const(slide.shift))
        reach = max(slide.reach, 1)
        low, high = (b.udiv(b.add(maximum(b, b.sub(const(limit), begin), ZERO), const(reach - 1)), const(reach))
                     for limit in (slide.low, slide.high))
        return low, minimum(b, high, const(slide.taps))

    def tile(self, place: ir.Value, places: int, known: int | None) -> None:
        """The results of some places of a row from `place` on; where that is `known`, what lies outside is left out."""
        sums = [zero(ir.VectorType(self.element, self.lanes))] * (places * self.plan.vectors)
        self.values.known[self.row.place] = place
        begin = self.b.add(self.b.mul(place, const(self.row.step)), const(self.row.shift))
        uses: dict[int, list[tuple[int, int]]] = {}
        for j, k in combinations(range(places), range(self.row.taps)):
            column = self.row.step * j + self.row.reach * k
            at = column + self.row.shift + self.row.step * (known or 0)
            if known is None or self.row.low <= at < self.row.high:
                uses.setdefault(column, []).append((j, k))
        offset = self.b.mul(begin, const(self.row.stride))
        if uses:
            sums = self.over(0, offset, ZERO, sums, uses)
        if self.has_vectors:
            self.finish(places, sums)
        else:
            self.put_by(place, places, sums)

    def over(self, axis: int, image: ir.Value, weights: ir.Value, sums: State,
             uses: dict[int, list[tuple[int, int]]]) -> State:
        """The sums with the products of all taps from an outer axis on; offsets of the image and the weights."""
        b, outer = self.b, self.plan.outer
        if axis == len(outer):
            return self.along(image, weights, sums, uses)
        slide = outer[axis]
        begin = b.add(b.mul(self.values.known[slide.place], const(slide.step)), const(slide.shift))
        with loop(b, *self.limits[axis], carried=sums, short=True) as (k, state):
            u = b.add(begin, b.mul(k, const(slide.reach)))
            state[:] = self.over(axis + 1, b.add(image, b.mul(u, const(slide.stride))),
                                 b.add(weights, b.mul(k, const(self.apart(slide)))), list(state), uses)
        return state

    def apart(self, slide: Slide) -> int:
        """Elements from the weights of one tap to those of the next."""
        return int(self.terms.get(slide.tap, 0)) if slide.tap is not None else 0

    def along(self, image: ir.Value, weights: ir.Value, sums: State, uses: dict[int, list[tuple[int, int]]]) -> State:
        """The sums with the products of the taps of a row; a vector of the image is loaded once."""
        b, found, places = self.b, list(sums), len(sums) // self.plan.vectors
        source, taps = (address(b, x, by, self.element) for x, by in ((self.image, image), (self.weights, weights)))
        for v, mask in enumerate(self.masks):
            line: dict[int, ir.Value] = {}
            for column, pairs in sorted(uses.items()):
                one = self.loaded(source, column * self.row.stride + v * self.lanes, mask)
                for j, k in pairs:
                    if k not in line:
                        line[k] = self.loaded(taps, k * self.apart(self.row) + v * self.lanes, mask)
                    number = v * places + j
                    found[number] = multiply_add(b, line[k], one, found[number])
        return found

    def loaded(self, start: ir.Value, by: int, mask: ir.Value | None) -> ir.Value:
        where = address(self.b, start, const(by), self.element)
        if mask is None:
            return load_vector(self.b, where, self.element, self.lanes)
        return masked_load(self.b, where, mask, zero(ir.VectorType(self.element, self.lanes)))

    # ------------------------------------------------------------ results

    def finish(self, places: int, sums: State) -> None:
        """The epilogue on registers."""
        epilogue = Lanes(self.values, self.plan.statement, self.lanes)
        for j, (v, mask) in combinations(range(places), enumerate(self.masks)):
            shift = {self.row.place: j, self.plan.channel: v * self.lanes}
            epilogue.finish(sums[v * places + j], shift, mask)

    @property
    def pitch(self) -> int:
        """Sums that wait at a place of a row."""
        return round_up(self.channels, self.plan.width)

    def put_by(self, place: ir.Value, places: int, sums: State) -> None:
        """Let the sums of a tile wait for an epilogue in loops."""
        b = self.b
        start = b.add(b.mul(place, const(self.pitch)), self.values.known[self.plan.channel])
        for number, value in enumerate(sums):
            v, j = divmod(number, places)
            at = b.add(start, const(j * self.pitch + v * self.lanes))
            store_vector(b, value, address(b, self.waiting, at, self.element))

    def hand_over(self, values: Values, given: Sequence[ir.Value]) -> None:
        """The epilogue for a row of sums."""
        b, statement, (waiting,) = values.b, self.plan.statement, given
        with loop(b, ZERO, const(self.row.places)) as (place, _):
            values.known[self.row.place] = place
            line = address(b, waiting, b.mul(place, const(self.pitch)), self.element)
            with loop(b, ZERO, const(self.channels)) as (channel, _):
                values.known[self.plan.channel] = channel
                values.known[statement.sum] = b.load(address(b, line, channel, self.element), typ=self.element)
                values.block(statement.epilogue)
