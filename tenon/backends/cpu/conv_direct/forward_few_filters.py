"""A convolution with few filters -> LLVM IR that keeps sums of windows in registers.

    for each batch (group of channels), image and block of rows:
        copy what the windows of the block cover, with zeros around it, a row in vectors, a phase of the stride apart
        for filters, rows and vectors of a tile: for channels: for taps: sums += weight * vector of the copy

Nothing is put together as columns: every tap of a window is found in the copy at a distance that is known here.  So it
needs few filters to be worth its while: depthwise convolutions, and groups of few channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product as combinations
from math import prod

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.contraction.ir_helpers import (
    ONE,
    ZERO,
    address,
    between,
    const,
    element_bytes,
    load_vector,
    loop,
    masked_store,
    maximum,
    minimum,
    multiply_add,
    splat,
    zero,
)
from tenon.backends.cpu.conv_direct.padded_copy import Cover, bind_indices
from tenon.backends.cpu.conv_direct.work_share import FMA_LATENCY_CYCLES, SPARE_REGISTERS, Task, block_of
from tenon.backends.cpu.epilogue_patterns import joined, only_stored
from tenon.backends.cpu.scalar_codegen import I32, register
from tenon.loops.affine import affine
from tenon.loops.expressions import Load, size
from tenon.loops.loop_ir import Contraction
from tenon.loops.select_conv_schedule import Sliding
from tenon.loops.simplify_expressions import substitute
from tenon.loops.window_access import Axis, Slide, Windows, count
from tenon.records import dataclass, replace
from tenon.target import Target, round_up


@dataclass(frozen=True)
class OutputTile:
    """filters x rows x vectors sums are held in registers."""

    filters: int
    rows: int
    vectors: int


@dataclass(frozen=True)
class FewFiltersPlan:
    """How a statement is computed: its windows, the other factor and its places, a block of the first slide."""

    statement: Contraction
    windows: Windows
    weights: Load
    filters: Axis
    tile: OutputTile
    lanes: int
    block: int

    @property
    def slides(self) -> tuple[Slide, ...]:
        return self.windows.slides

    def places(self, axis: int) -> int:
        """Windows along a slide that are computed in a block; more than there are, where tiles go over the end."""
        slide = self.slides[axis]
        count = self.block if axis == 0 else slide.places
        if axis == len(self.slides) - 1:
            return round_up(count, self.tile.vectors * self.lanes)
        return round_up(count, self.tile.rows) if axis == len(self.slides) - 2 else count

    @property
    def cover(self) -> Cover:
        return Cover(self.windows, tuple(self.places(k) for k in range(len(self.slides))), self.lanes)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(_parts(self)) + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _Sliding(self, task).emit()

    @property
    def blocks(self) -> int:
        return -(-self.slides[0].places // self.block)

    @property
    def results(self) -> int:
        """Elements of a block's results for one filter."""
        return self.block * prod(s.places for s in self.slides[1:])


def plan_of(statement: Contraction, found: Sliding, machine: Target) -> FewFiltersPlan:
    """How to compute the statement whose windows slide like this."""
    element = register(statement.sum.dtype)
    windows, lanes = found.windows, machine.vector_bytes // element_bytes(element)
    tile = best_tile(windows, count(found.filters), lanes, machine.registers)
    plan = FewFiltersPlan(statement, windows, found.other, found.filters, tile, lanes, windows.slides[0].places)
    step = tile.vectors * lanes if len(windows.slides) == 1 else tile.rows if len(windows.slides) == 2 else 1
    return replace(plan, block=min(round_up(block_of(plan.cover), step), plan.block))


def best_tile(windows: Windows, filters: int, lanes: int, registers: int) -> OutputTile:
    """The tile that takes least time: its multiply-adds, or its loads, or waiting for sums; edges cost as much."""
    slides = windows.slides
    taps, across = prod(s.taps for s in slides), -(-slides[-1].places // lanes)
    rows = slides[-2] if len(slides) > 1 else None
    found = []
    for f, r, v in combinations(range(1, filters + 1), range(1, 9 if rows else 2), range(1, 9)):
        if f * r * v > registers - SPARE_REGISTERS or r > (rows.places if rows else 1) or v > across:
            continue
        lines = (rows.covered(r) if rows else 1) * (taps // (rows.taps if rows else 1))
        loads = 1.5 * min(lines, taps * r) * v + taps * f
        time = max(taps * f * r * v / 2, loads / 2, FMA_LATENCY_CYCLES * taps)
        iterations = -(-filters // f) * (-(-rows.places // r) if rows else 1) * -(-across // v)
        found.append((time * iterations, -f * r * v, OutputTile(f, r, v)))
    return min(found, key=lambda x: x[:2])[2]



def _parts(plan: FewFiltersPlan) -> tuple[int, int]:
    """Bytes of the copies of all channels, and of results that wait for the epilogue."""
    size_of = element_bytes(register(plan.statement.sum.dtype))
    waiting = 0 if _store_of(plan) else plan.tile.filters * (plan.results + plan.lanes)
    return round_up(plan.cover.elements * count(plan.windows.channels) * size_of, 64), round_up(waiting * size_of, 64)


def _store_of(plan: FewFiltersPlan) -> object:
    return only_stored(plan.statement.epilogue, plan.statement.sum, plan.slides[-1].place)


class _Sliding:
    """Writes the loops of a plan."""

    def __init__(self, plan: FewFiltersPlan, task: Task) -> None:
        self.plan, self.values, self.b, self.task = plan, task.values, task.values.b, task
        self.element = register(plan.statement.sum.dtype)
        self.cover, self.store = plan.cover, only_stored(plan.statement.epilogue, plan.statement.sum,
                                                         plan.slides[-1].place)
        self.copies, self.waiting = task.parts(_parts(plan))
        terms = affine(plan.weights.offset).terms
        self.taps = [tuple(zip((s.tap for s in plan.slides), k, strict=True))
                     for k in combinations(*(range(s.taps) for s in plan.slides))]
        self.weight_at = [sum(int(terms.get(tap, 0)) * k for tap, k in taps if tap is not None)
                          for taps in self.taps]
        self.copy_at = [plan.cover.place(tuple(k for _, k in taps)) for taps in self.taps]

    def emit(self) -> None:
        """All tasks of this thread."""
        b, plan = self.b, self.plan
        tasks = count(plan.statement.batch) * count(plan.windows.outside) * plan.blocks
        with loop(b, *self.task.share(tasks)) as (task, _):
            block, rest = b.urem(task, const(plan.blocks)), b.udiv(task, const(plan.blocks))
            bind_indices(self.values, (*plan.statement.batch, *plan.windows.outside), rest)
            first = b.mul(block, const(plan.block))
            self.cover.emit(self.values, self.copies, first)
            some = minimum(b, const(plan.block), b.sub(const(plan.slides[0].places), first))
            with loop(b, ZERO, const(count(plan.filters)), const(plan.tile.filters)) as (f, _):
                self.filters(f, first, some)

    def filters(self, f: ir.Value, first: ir.Value, some: ir.Value) -> None:
        """All results of a block for the filters from f on; `some` places of the first slide, from `first` on."""
        b, plan = self.b, self.plan
        counts = [some, *(const(s.places) for s in plan.slides[1:])]
        steps = [const(1)] * len(counts)
        steps[-1] = const(plan.tile.vectors * plan.lanes)
        if len(counts) > 1:
            steps[-2] = const(plan.tile.rows)
        with self.loops(counts, steps) as places:
            self.tile(f, first, places, counts)
        if self.store is None:
            last = minimum(b, const(plan.tile.filters), b.sub(const(count(plan.filters)), f))
            with loop(b, ZERO, last, short=True) as (i, _):
                bind_indices(self.values, plan.filters, b.add(f, i))
                self.finish(b.mul(i, const(plan.results)), first, counts)

    @contextmanager
    def loops(self, counts: Sequence[ir.Value], steps: Sequence[ir.Value]) -> Iterator[list[ir.Value]]:
        """A loop for each count, one inside the other."""
        if not counts:
            yield []
            return
        with loop(self.b, ZERO, counts[0], steps[0], short=True) as (place, _), \
                self.loops(counts[1:], steps[1:]) as inner:
            yield [place, *inner]

    def tile(self, f: ir.Value, first: ir.Value, places: list[ir.Value], counts: list[ir.Value]) -> None:
        """The sums of one tile, and where they go."""
        b, plan, tile = self.b, self.plan, self.plan.tile
        start = address(b, self.copies, self.cover.start(b, places), self.element)
        none = zero(ir.VectorType(self.element, plan.lanes))
        last = const(count(plan.filters) - 1)
        sums = [none] * (tile.filters * tile.rows * tile.vectors)
        with loop(b, ZERO, const(count(plan.windows.channels)), carried=sums, short=True) as (channel, state):
            bind_indices(self.values, plan.windows.channels, channel)
            copy = address(b, start, b.mul(channel, const(self.cover.elements)), self.element)
            weights = []
            for i in range(tile.filters):
                bind_indices(self.values, plan.filters, minimum(b, b.add(f, const(i)), last))
                weights.append(self.weights_from())
            state[:] = self.added(state, copy, weights)
        for number, value in enumerate(state):
            i, row, v = number // (tile.rows * tile.vectors), number // tile.vectors % tile.rows, number % tile.vectors
            self.put(b.add(f, const(i)), i, first, self.moved(places, row, v), counts, value)

    def weights_from(self) -> Callable[[int], ir.Value]:
        """Gives the weight of a tap, in all lanes, for the filter and channel that are known."""
        b, load, found = self.b, self.plan.weights, dict[int, ir.Value]()
        nowhere = {tap: size(0) for tap in self.plan.windows.taps}
        base = self.values.address(load.buffer, substitute(load.offset, nowhere))
        kind = scalar.in_memory(load.dtype)

        def weight(tap: int) -> ir.Value:
            if tap not in found:
                where = b.gep(base, [const(self.weight_at[tap])], source_etype=kind)
                one = scalar.from_memory(b, b.load(where, typ=kind), load.dtype)
                found[tap] = splat(b, one, self.plan.lanes)
            return found[tap]
        return weight

    def added(self, sums: Sequence[ir.Value], copy: ir.Value,
              weights: Sequence[Callable[[int], ir.Value]]) -> list[ir.Value]:
        """The sums with the products of all taps of one channel, each vector of the copy being loaded once."""
        b, plan, tile = self.b, self.plan, self.plan.tile
        sums, lanes = list(sums), plan.lanes
        below = self.cover.step(len(plan.slides) - 2) if len(plan.slides) > 1 else 0
        uses: dict[int, list[tuple[int, int]]] = {}
        for row, tap in combinations(range(tile.rows), range(len(self.taps))):
            uses.setdefault(self.copy_at[tap] + row * below, []).append((row, tap))
        for place in sorted(uses):
            vectors = [load_vector(b, address(b, copy, const(place + v * lanes), self.element), self.element, lanes)
                       for v in range(tile.vectors)]
            for (row, tap), i in combinations(uses[place], range(tile.filters)):
                for v, vector in enumerate(vectors):
                    k = (i * tile.rows + row) * tile.vectors + v
                    sums[k] = multiply_add(b, weights[i](tap), vector, sums[k])
        return sums

    def moved(self, places: list[ir.Value], row: int, vector: int) -> list[ir.Value]:
        """The places of one vector of the tile."""
        found = list(places)
        found[-1] = self.b.add(found[-1], const(vector * self.plan.lanes))
        if len(found) > 1:
            found[-2] = self.b.add(found[-2], const(row))
        return found

    # ------------------------------------------------------------ results

    def put(self, f: ir.Value, number: int, first: ir.Value, places: list[ir.Value], counts: list[ir.Value],
            value: ir.Value) -> None:
        """Store the lanes of a vector that are results: where they belong, or where they wait."""
        b, plan, lanes = self.b, self.plan, self.plan.lanes
        some = b.sub(counts[-1], places[-1])
        for place, limit in [(f, const(count(plan.filters))), *zip(places[-2:-1], counts[-2:-1], strict=True)]:
            some = b.select(b.icmp_signed("<", place, limit), some, ZERO)
        some = b.trunc(maximum(b, minimum(b, some, const(lanes)), ZERO), I32)
        if self.store is not None:
            bind_indices(self.values, plan.filters, minimum(b, f, const(count(plan.filters) - 1)))
            self.know_places(first, places)
            where = self.values.address(self.store.buffer, self.store.offset)
        else:
            where = address(b, self.waiting, b.add(const(number * plan.results), self.flat(places)), self.element)
        masked_store(b, value, where, between(b, ir.Constant(I32, 0), some, lanes))

    def know_places(self, first: ir.Value, places: Sequence[ir.Value]) -> None:
        """Let the places of all slides be those in a block that begins at `first`."""
        for slide, place in zip(self.plan.slides, places, strict=True):
            self.values.known[slide.place] = place
        self.values.known[self.plan.slides[0].place] = self.b.add(first, places[0])

    def flat(self, places: Sequence[ir.Value]) -> ir.Value:
        """The number of a result among those of a block."""
        total = places[0]
        for slide, place in zip(self.plan.slides[1:], places[1:], strict=True):
            total = self.b.add(self.b.mul(total, const(slide.places)), place)
        return total

    def finish(self, start: ir.Value, first: ir.Value, counts: list[ir.Value]) -> None:
        """The epilogue for all results of a block that wait from `start` on; in long runs, which LLVM vectorises."""
        b, plan, statement = self.b, self.plan, self.plan.statement
        together = joined(statement.epilogue, [s.place for s in plan.slides])
        outer, run = counts[:-together], counts[-together]
        for slide in plan.slides[len(plan.slides) - together + 1:]:
            run = b.mul(run, const(slide.places))
        with self.loops(outer, [ONE] * len(outer)) as places, loop(b, ZERO, run) as (i, _):
            self.know_places(first, [*places, *[ZERO] * together])
            last = plan.slides[-1].place
            begin = self.values.known[last]
            self.values.known[last] = b.add(begin, i)
            where = b.add(b.add(start, self.flat([*places, *[ZERO] * together])), i)
            self.values.known[statement.sum] = b.load(address(b, self.waiting, where, self.element), typ=self.element)
            self.values.block(statement.epilogue)
