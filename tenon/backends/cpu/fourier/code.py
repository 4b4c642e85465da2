"""Machine code for Fourier transforms of columns: as many columns at a time as a vector holds.

    void run(ptr jobs, i64 count, i64 repeats)

A job transforms LANES columns of LENGTH complex numbers; `repeats` says how often all jobs are done, each time with
pointers that have moved on.

The columns of a vector are gathered into a buffer, a vector of real parts and one of imaginary parts for each of their
elements.  Stage after stage (T. G. Stockham's order, which needs no permutation) goes from one of two buffers to the
other: of a radix r, elements at p + m j, for all j < r, become elements at r p + k, times a root of unity for p and k.
What comes out is multiplied by `factors` where there are some, and scattered.  The inverse exchanges the two parts.

A job of LENGTH 0 makes of the transform z of n real numbers, two of which were taken as one complex number, theirs, and
the other way round, in LANES rows of m = n / 2: y[k] = h (z[k] + conj z[m - k]) + g[k] (z[k] - conj z[m - k]), where
FACTORS are g, but for g[0], which is h; the steps say where rows begin, and where the second of two numbers is that
stand for z[0] and z[m], which are real.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from math import pi
from typing import Any

from llvmlite import ir

from tenon.backends.cpu.contraction.emit import transpose
from tenon.backends.native import NOTHING, POINTER, WORD, Function, Module, Pointer, Word

(SOURCE, TARGET, SOURCE_LANE, SOURCE_STEP, TARGET_LANE, TARGET_STEP, LANES, LENGTH, STAGES, BUFFERS, FACTORS, SWAPPED,
 SOURCE_MOVES, TARGET_MOVES, COUNT) = range(15)
JOB_WORDS = 15
SOURCE_SECOND, TARGET_SECOND = SOURCE_LANE, TARGET_LANE     # of a job of length 0, in bytes, as its steps are
RADIX, APART, INNER, ROOTS = range(4)       # the words of a stage; the last one is followed by a radix of 0
STAGE_WORDS = 4
RADICES = (4, 5, 3, 2, 7, 11, 13)
Pair = tuple[Any, Any]                      # real and imaginary part


def module(bits: int, lanes: int) -> Module:
    """The functions for elements of so many bits, and so many of them in a vector."""
    made, kind = Module(), ir.FloatType() if bits == 32 else ir.DoubleType()
    code = _Code(kind, lanes, bits // 8)
    for radix in RADICES:
        made.define(f"radix{radix}", code.stage(radix), NOTHING, POINTER, POINTER, WORD, WORD, POINTER)
    made.define("gather", code.gather, NOTHING, POINTER, WORD, WORD, POINTER)
    made.define("scatter", code.scatter, NOTHING, POINTER, WORD, WORD, POINTER)
    made.define("columns", code.columns, NOTHING, POINTER)
    made.define("mirror", code.mirror, NOTHING, POINTER)
    made.define("run", code.run, NOTHING, POINTER, WORD, WORD, public=True)
    return made


class _Code:
    """What writes the functions for one element type."""

    def __init__(self, kind: ir.Type, lanes: int, size: int) -> None:
        self.kind, self.lanes, self.size = kind, lanes, size
        self.vector = ir.VectorType(kind, lanes)
        self.plane = lanes * size           # bytes of a vector
        self.pair = 2 * self.plane

    def run(self, f: Function, jobs: Pointer, count: Word, repeats: Word) -> None:
        with f.each(repeats), f.each(count) as k:
            job = jobs.at(k * JOB_WORDS)
            transforms = job.word(LENGTH) != 0
            with f.where(transforms):
                f.call("columns", job)
            with f.unless(transforms):
                f.call("mirror", job)
            for place, moves in ((SOURCE, SOURCE_MOVES), (TARGET, TARGET_MOVES)):
                job.put(job.word(place) + job.word(moves), place)
        f.give()

    def columns(self, f: Function, job: Pointer) -> None:
        """One job: columns by the vector; the last vector begins where a whole one is left."""
        lanes, start = job.word(LANES), f.variable(0)
        with f.loop(lambda: start() < lanes):
            first, count = f.variable(start()), f.variable(self.lanes)
            with f.where(lanes < start() + self.lanes):
                first.set(0)
                count.set(lanes)
                with f.unless(lanes < self.lanes):
                    first.set(lanes - self.lanes)
                    count.set(self.lanes)
            one = job.pointer(BUFFERS)
            other = one.behind(job.word(LENGTH) * self.pair)
            f.call("gather", job, first(), count(), one)
            here, there, stage = f.variable(one), f.variable(other), f.variable(job.pointer(STAGES))
            with f.loop(lambda: stage().word(RADIX) != 0):
                f.switch(stage().word(RADIX), {radix: self._call(f, radix, stage, here, there) for radix in RADICES})
                now = here()
                here.set(there())
                there.set(now)
                stage.set(stage().at(STAGE_WORDS))
            f.call("scatter", job, first(), count(), here())
            start.set(start() + self.lanes)
        f.give()

    def _call(self, f: Function, radix: int, stage: Any, here: Any, there: Any) -> Callable[[], None]:
        return lambda: f.call(f"radix{radix}", here(), there(), stage().word(APART), stage().word(INNER),
                              stage().pointer(ROOTS))

    # ------------------------------------------------------------ to and from memory

    def gather(self, f: Function, job: Pointer, first: Word, count: Word, buffer: Pointer) -> None:
        step, lane = job.word(SOURCE_STEP) * 2 * self.size, job.word(SOURCE_LANE) * 2 * self.size
        source = job.pointer(SOURCE).behind(first * lane)
        real = buffer.behind(job.word(SWAPPED) * self.plane)
        imaginary = buffer.behind((job.word(SWAPPED) ^ 1) * self.plane)
        dense = (job.word(SOURCE_LANE) == 1) & (count == self.lanes)
        with f.where(dense):
            with f.each(job.word(LENGTH)) as k:
                for place, part in zip((real, imaginary), self.deinterleaved(f, source.behind(k * step)), strict=True):
                    self.store(part, place.behind(k * self.pair))
        with f.unless(dense), f.each(job.word(LENGTH)) as k, f.each(count) as x:
            at = source.behind(k * step + x * lane)
            for place, odd in ((real, 0), (imaginary, 1)):
                to = place.behind(k * self.pair + x * self.size)
                f.b.store(f.b.load(at.behind(odd * self.size).value, typ=self.kind), to.value)
        f.give()

    def scatter(self, f: Function, job: Pointer, first: Word, count: Word, buffer: Pointer) -> None:
        step, lane = job.word(TARGET_STEP) * 2 * self.size, job.word(TARGET_LANE) * 2 * self.size
        target = job.pointer(TARGET).behind(first * lane)
        with f.unless(job.word(FACTORS) == 0), f.each(job.word(LENGTH)) as k:
            row = job.pointer(FACTORS).behind((k * 2 * job.word(LANES) + first) * self.size)
            factor = self.load(row), self.load(row.behind(job.word(LANES) * self.size))
            at = buffer.behind(k * self.pair)
            self.store_pair(_times(f.b, self.load_pair(at), factor), at)
        real = buffer.behind(job.word(SWAPPED) * self.plane)
        imaginary = buffer.behind((job.word(SWAPPED) ^ 1) * self.plane)
        dense = (job.word(TARGET_LANE) == 1) & (count == self.lanes)
        with f.where(dense), f.each(job.word(LENGTH)) as k:
            parts = self.load(real.behind(k * self.pair)), self.load(imaginary.behind(k * self.pair))
            self.interleave(f, parts, target.behind(k * step))
        turned = (job.word(TARGET_STEP) == 1) & (count == self.lanes) & ~(job.word(LENGTH) < self.lanes)
        with f.where(turned):
            self.turn(f, job.word(LENGTH), real, imaginary, lambda k, x: target.behind(k * step + lane * x))
        with f.unless(dense | turned), f.each(count) as x, f.each(job.word(LENGTH)) as k:
            at = target.behind(k * step + x * lane)
            for place, odd in ((real, 0), (imaginary, 1)):
                part = f.b.load(place.behind(k * self.pair + x * self.size).value, typ=self.kind)
                f.b.store(part, at.behind(odd * self.size).value)
        f.give()

    def turn(self, f: Function, length: Word, real: Pointer, imaginary: Pointer,
             place: Callable[[Word, int], Pointer]) -> None:
        """Store squares of a vector's columns and as many elements of each, an element behind the other."""
        start = f.variable(0)
        with f.loop(lambda: start() < length):
            first = f.variable(start())
            with f.where(length < start() + self.lanes):
                first.set(length - self.lanes)
            lines = [transpose(f.b, [self.load(part.behind((first() + k) * self.pair)) for k in range(self.lanes)])
                     for part in (real, imaginary)]
            for x, line in enumerate(zip(*lines, strict=True)):
                self.interleave(f, line, place(first(), x))
            start.set(start() + self.lanes)

    def shuffled(self, f: Function, x: ir.Value, y: ir.Value, places: Sequence[int]) -> ir.Value:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), list(places))
        return f.b.shuffle_vector(x, y, mask)

    def deinterleaved(self, f: Function, at: Pointer, backwards: bool = False) -> Pair:
        """As many complex numbers as a vector holds."""
        low, high, order = self.load(at), self.load(at.behind(self.plane)), -1 if backwards else 1
        real, imaginary = (self.shuffled(f, low, high, range(k, 2 * self.lanes, 2)[::order]) for k in range(2))
        return real, imaginary

    def interleave(self, f: Function, x: Pair, at: Pointer) -> None:
        for half in range(2):
            places = [k // 2 + k % 2 * self.lanes for k in range(half * self.lanes, (half + 1) * self.lanes)]
            self.store(self.shuffled(f, *x, places), at.behind(half * self.plane))

    # ------------------------------------------------------------ real numbers

    def mirror(self, f: Function, job: Pointer) -> None:
        count, table, number = job.word(COUNT), job.pointer(FACTORS), 2 * self.size
        scale = self.spread(f.b, f.b.load(table.value, typ=self.kind))
        with f.each(job.word(LANES)) as k:
            source = job.pointer(SOURCE).behind(k * job.word(SOURCE_STEP))
            target = job.pointer(TARGET).behind(k * job.word(TARGET_STEP))
            second = target.behind(job.word(TARGET_SECOND))
            x, y = (f.b.load(source.behind(at).value, typ=self.kind) for at in (0, job.word(SOURCE_SECOND)))
            for place in (target, second):          # what is no imaginary part is written after that
                f.b.store(ir.Constant(self.kind, 0.0), place.behind(self.size).value)
            f.b.store(f.b.fadd(x, y), target.value)
            f.b.store(f.b.fsub(x, y), second.value)
            start = f.variable(1)
            with f.loop(lambda: start() < count):
                first = f.variable(start())
                with f.where(count < start() + self.lanes):
                    first.set(count - self.lanes)
                at = first() * number
                here = self.deinterleaved(f, source.behind(at))
                there = self.deinterleaved(f, source.behind((count - first() - (self.lanes - 1)) * number), True)
                there = there[0], f.b.fneg(there[1])
                total, difference = _two(f.b, [here, there])
                turned = _times(f.b, difference, self.deinterleaved(f, table.behind(at)))
                parts = [f.b.fadd(f.b.fmul(scale, x, flags=("contract",)), y, flags=("contract",))
                         for x, y in zip(total, turned, strict=True)]
                self.interleave(f, (parts[0], parts[1]), target.behind(at))
                start.set(start() + self.lanes)
        f.give()

    # ------------------------------------------------------------ a stage

    def stage(self, radix: int) -> Callable[..., None]:
        def write(f: Function, source: Pointer, target: Pointer, apart: Word, inner: Word, roots: Pointer) -> None:
            with f.each(apart) as p:
                turns = [self.root(f, roots.behind((p * (radix - 1) + k) * 2 * self.size)) for k in range(radix - 1)]
                with f.each(inner) as q:
                    given = [self.load_pair(source.behind((q + inner * (p + apart * j)) * self.pair))
                             for j in range(radix)]
                    first, *others = BUTTERFLIES.get(radix, _any)(f.b, given)
                    turned = [first, *(_times(f.b, x, turn) for x, turn in zip(others, turns, strict=True))]
                    for k, x in enumerate(turned):
                        self.store_pair(x, target.behind((q + inner * (p * radix + k)) * self.pair))
            f.give()
        return write

    def root(self, f: Function, at: Pointer) -> Pair:
        """A root of unity, in all elements of two vectors."""
        real, imaginary = (self.spread(f.b, f.b.load(at.behind(k * self.size).value, typ=self.kind)) for k in range(2))
        return real, imaginary

    def spread(self, b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        one = b.insert_element(ir.Constant(self.vector, ir.Undefined), x, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return b.shuffle_vector(one, ir.Constant(self.vector, ir.Undefined), zeros)

    def load(self, at: Pointer) -> ir.Value:
        return at.b.load(at.value, typ=self.vector, align=self.size)

    def store(self, x: ir.Value, at: Pointer) -> None:
        at.b.store(x, at.value, align=self.size)

    def load_pair(self, at: Pointer) -> Pair:
        return self.load(at), self.load(at.behind(self.plane))

    def store_pair(self, x: Pair, at: Pointer) -> None:
        self.store(x[0], at)
        self.store(x[1], at.behind(self.plane))


# ---------------------------------------------------------------- transforms of a few numbers

def _add(b: ir.IRBuilder, x: Pair, y: Pair, *flags: str) -> Pair:
    return b.fadd(x[0], y[0], flags=flags), b.fadd(x[1], y[1], flags=flags)


def _subtract(b: ir.IRBuilder, x: Pair, y: Pair) -> Pair:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def _times(b: ir.IRBuilder, x: Pair, y: Pair) -> Pair:
    real = b.fsub(b.fmul(x[0], y[0]), b.fmul(x[1], y[1], flags=("contract",)), flags=("contract",))
    imaginary = b.fadd(b.fmul(x[0], y[1]), b.fmul(x[1], y[0], flags=("contract",)), flags=("contract",))
    return real, imaginary


def _two(b: ir.IRBuilder, x: Sequence[Pair]) -> list[Pair]:
    return [_add(b, x[0], x[1]), _subtract(b, x[0], x[1])]


def _four(b: ir.IRBuilder, x: Sequence[Pair]) -> list[Pair]:
    even, odd = _two(b, [x[0], x[2]]), _two(b, [x[1], x[3]])
    quarter = odd[1][1], b.fneg(odd[1][0])                  # times -i
    return [_add(b, even[0], odd[0]), _add(b, even[1], quarter),
            _subtract(b, even[0], odd[0]), _subtract(b, even[1], quarter)]


def _any(b: ir.IRBuilder, x: Sequence[Pair]) -> list[Pair]:
    """An odd number of them: those as far from the first as from the last are added and subtracted before."""
    radix, half = len(x), len(x) // 2 + 1
    sums = [_add(b, x[j], x[-j]) for j in range(1, half)]
    differences = [_subtract(b, x[j], x[-j]) for j in range(1, half)]
    first = x[0]
    for each in sums:
        first = _add(b, first, each)
    low, high = [], []
    for k in range(1, half):
        roots = [cmath.exp(-2j * pi * (j * k % radix) / radix) for j in range(1, half)]
        near, far = x[0], _scaled(b, differences[0], roots[0].imag)
        for root, total in zip(roots, sums, strict=True):
            near = _add(b, near, _scaled(b, total, root.real), "contract")
        for root, difference in zip(roots[1:], differences[1:], strict=True):
            far = _add(b, far, _scaled(b, difference, root.imag), "contract")
        low.append((b.fsub(near[0], far[1]), b.fadd(near[1], far[0])))
        high.append((b.fadd(near[0], far[1]), b.fsub(near[1], far[0])))
    return [first, *low, *reversed(high)]


def _scaled(b: ir.IRBuilder, x: Pair, factor: float) -> Pair:
    by = ir.Constant(x[0].type, [factor] * x[0].type.count)
    return b.fmul(by, x[0], flags=("contract",)), b.fmul(by, x[1], flags=("contract",))


BUTTERFLIES = {2: _two, 4: _four}
