"""The input of a block's windows -> a padded copy of it, with the phases of the innermost stride apart.

    copy[channel, t, ..., phase, i] = element at (t, ..., step*i + phase), or 0 where nothing is

Rows are copied in masked vectors.  A window at place p with tap k begins at `start(p) + place(k)`, and its neighbours
along the last slide lie beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.contraction.ir_helpers import (
    ONE,
    ZERO,
    address,
    between,
    const,
    loop,
    masked_load,
    store_vector,
    zero,
)
from tenon.backends.cpu.contraction.transpose_registers import widened
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import I1, I32, register
from tenon.loops.window_access import Axis, Slide, Windows, count
from tenon.records import dataclass

POSITIVE_SHIFT = 1 << 20    # multiples of a spread that make every coordinate positive
MAX_VECTORS = 4         # of a phase of a row, which are written out one by one


def bind_indices(values: Values, axis: Axis, flat: ir.Value) -> None:
    """Let the indices of an axis be those of a flat place."""
    for index in axis[:0:-1]:
        extent = const(count((index,)))
        values.known[index], flat = values.b.urem(flat, extent), values.b.udiv(flat, extent)
    if axis:
        values.known[axis[0]] = flat


@dataclass(frozen=True)
class Cover:
    """The copy for so many places along each slide, the last of which is a whole number of vectors."""

    windows: Windows
    places: tuple[int, ...]
    lanes: int

    @property
    def slides(self) -> tuple[Slide, ...]:
        return self.windows.slides

    @property
    def phase(self) -> int:
        """Elements of a phase of a row."""
        last = self.slides[-1]
        furthest = abs(last.reach) * (last.taps - 1) // last.step
        pair = self.lanes * (2 if last.spread == 2 else 1)
        return -(-(furthest + self.places[-1]) // pair) * pair

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements along each slide but the last, then those of a row."""
        last = self.slides[-1]
        return (*(s.covered(n) for s, n in zip(self.slides[:-1], self.places, strict=False)), last.step * self.phase)

    @property
    def elements(self) -> int:
        """Of one channel."""
        return prod(self.sizes)

    def pitch(self, axis: int) -> int:
        """Elements between neighbours along a slide."""
        return prod(self.sizes[axis + 1:])

    def step(self, axis: int) -> int:
        """Elements between windows at neighbouring places along a slide other than the last."""
        return self.slides[axis].step * self.pitch(axis)

    def start(self, b: ir.IRBuilder, places: Sequence[ir.Value]) -> ir.Value:
        """Where the first taps of the windows at these places of the block are."""
        total = places[-1]
        for axis, place in enumerate(places[:-1]):
            total = b.add(total, b.mul(place, const(self.step(axis))))
        return total

    def place(self, taps: Sequence[int]) -> int:
        """How far from the beginning of a window a tap is."""
        total = 0
        for axis, (slide, k) in enumerate(zip(self.slides, taps, strict=True)):
            at = slide.reach * k - slide.first
            if axis < len(self.slides) - 1:
                total += at * self.pitch(axis)
            else:
                total += at % slide.step * self.phase + at // slide.step
        return total

    def emit(self, values: Values, copy: ir.Value, first: ir.Value,
             channels: tuple[ir.Value, ir.Value] | None = None) -> None:
        """Make the copy of all channels, or of those between two, for a block from place `first` of the first slide."""
        _PaddedCopy(self, values, copy, first).emit(*channels or (ZERO, const(count(self.windows.channels))))


class _PaddedCopy:
    """Writes the loops that copy."""

    def __init__(self, cover: Cover, values: Values, copy: ir.Value, first: ir.Value) -> None:
        self.cover, self.values, self.b, self.copy = cover, values, values.b, copy
        self.load = cover.windows.load
        self.dtype, self.element = self.load.dtype, register(self.load.dtype)
        self.begins = [first, *[ZERO] * (len(cover.slides) - 1)]

    def emit(self, start: ir.Value, stop: ir.Value) -> None:
        """All rows of the channels from `start` to `stop`."""
        b, channels = self.b, self.cover.windows.channels
        with loop(b, start, stop, short=True) as (channel, _):
            bind_indices(self.values, channels, channel)
            base = self.values.address(self.load.buffer, self.cover.windows.base)
            with self.lines(0) as (offset, valid, place):
                row = b.add(b.mul(b.sub(channel, start), const(self.cover.elements)), place)
                self.row(self.memory(base, offset), address(b, self.copy, row, self.element), valid)

    @contextmanager
    def lines(self, axis: int) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """Loops over all rows from this slide on: (offset in memory, whether there is one, place in the copy)."""
        b, cover = self.b, self.cover
        if axis == len(cover.slides) - 1:
            yield ZERO, ir.Constant(I1, 1), ZERO
            return
        slide = cover.slides[axis]
        with loop(b, ZERO, const(cover.sizes[axis]), short=True) as (t, _), \
                self.lines(axis + 1) as (offset, valid, place):
            u, some = self.coordinate(slide, b.add(t, self.beginning(axis)))
            yield (b.add(offset, b.mul(u, const(slide.stride))), b.and_(some, valid),
                   b.add(place, b.mul(t, const(cover.pitch(axis)))))

    def beginning(self, axis: int) -> ir.Value:
        """The least t of the block along a slide."""
        slide = self.cover.slides[axis]
        return self.b.add(self.b.mul(self.begins[axis], const(slide.step)), const(slide.first))

    def coordinate(self, slide: Slide, t: ir.Value) -> tuple[ir.Value, ir.Value]:
        """(u, whether an element is there)."""
        b, u, whole = self.b, self.b.add(t, const(slide.shift)), ir.Constant(I1, 1)
        if slide.spread > 1:
            positive = b.add(u, const(slide.spread * POSITIVE_SHIFT))
            u = b.sub(b.udiv(positive, const(slide.spread)), const(POSITIVE_SHIFT))
            whole = b.icmp_unsigned("==", b.urem(positive, const(slide.spread)), ZERO)
        inside = b.and_(b.icmp_signed(">=", u, const(slide.low)), b.icmp_signed("<", u, const(slide.high)))
        return u, b.and_(whole, inside)

    def memory(self, base: ir.Value, offset: ir.Value) -> ir.Value:
        return self.b.gep(base, [offset], source_etype=scalar.in_memory(self.dtype))

    # ------------------------------------------------------------ one row

    def row(self, source: ir.Value, target: ir.Value, valid: ir.Value) -> None:
        """One row: from its coordinate 0 in memory to its first phase in the copy."""
        b, cover, slide = self.b, self.cover, self.cover.slides[-1]
        if slide.step > 2 or slide.spread > 2:
            self.one_by_one(source, target, valid)
            return
        run, none = cover.lanes * slide.spread, zero(ir.VectorType(self.element, cover.lanes))
        if len(cover.slides) > 1 and cover.phase <= MAX_VECTORS * run:
            with b.if_else(valid, likely=True) as (there, missing):
                with there:
                    for i in range(0, cover.phase, run):
                        self.run(source, target, const(i), slide.first + slide.shift + i * slide.step, None)
                with missing:
                    for i in range(0, cover.phase * slide.step, cover.lanes):
                        self.put(none, address(b, target, const(i), self.element))
            return
        begin = b.add(self.beginning(len(cover.slides) - 1), const(slide.shift))
        with loop(b, ZERO, const(cover.phase), const(run), short=True) as (i, _):
            self.run(source, target, i, b.add(begin, b.mul(i, const(slide.step))), valid)

    def run(self, source: ir.Value, target: ir.Value, i: ir.Value, u: ir.Value | int, valid: ir.Value | None) -> None:
        """Place i of each phase of a row and those beside it, from coordinate u on (from u / 2 if zeros lie between).

        Where the coordinate is known while the code is written, the row is there.
        """
        slide, start = self.cover.slides[-1], address(self.b, target, i, self.element)
        if slide.spread == 2:
            self.spread(source, start, u, valid)
        elif slide.step == 2:
            self.halves(source, start, u, valid)
        else:
            self.put(self.vector(source, u, valid), start)

    def put(self, value: ir.Value, where: ir.Value) -> None:
        store_vector(self.b, value, where)

    def vector(self, source: ir.Value, u: ir.Value | int, valid: ir.Value | None) -> ir.Value:
        """The elements from coordinate u on, zeros where there are none."""
        b, slide, lanes = self.b, self.cover.slides[-1], self.cover.lanes
        kind = scalar.in_memory(self.dtype)
        kind = ir.IntType(16) if self.dtype.bits == 16 else kind
        if isinstance(u, int):
            some = [slide.low <= u + k < slide.high for k in range(lanes)]
            where, mask = b.gep(source, [const(u)], source_etype=kind), ir.Constant(ir.VectorType(I1, lanes), some)
        else:
            assert valid is not None
            low, high = (self.clamped(b.select(valid, b.sub(const(limit), u), ZERO))
                         for limit in (slide.low, slide.high))
            where, mask = b.gep(source, [u], source_etype=kind), between(b, low, high, lanes)
        return widened(b, masked_load(b, where, mask, zero(ir.VectorType(kind, lanes))), self.dtype, lanes)

    def clamped(self, x: ir.Value) -> ir.Value:
        """As 32 bits; what is far outside stays outside."""
        b, far = self.b, const(1 << 20)
        x = b.select(b.icmp_signed("<", x, far), x, far)
        return b.trunc(b.select(b.icmp_signed(">", x, ZERO), x, ZERO), I32)

    def halves(self, source: ir.Value, target: ir.Value, u: ir.Value | int, valid: ir.Value | None) -> None:
        """Two phases: the even elements from coordinate u on, and the odd ones."""
        b, lanes = self.b, self.cover.lanes
        pair = [self.vector(source, u + k if isinstance(u, int) else b.add(u, const(k)), valid) for k in (0, lanes)]
        for phase in range(2):
            chosen = ir.Constant(ir.VectorType(I32, lanes), list(range(phase, 2 * lanes, 2)))
            self.put(b.shuffle_vector(*pair, chosen), address(b, target, const(phase * self.cover.phase), self.element))

    def spread(self, source: ir.Value, target: ir.Value, e: ir.Value | int, valid: ir.Value | None) -> None:
        """Two vectors: elements with a zero between any two, the first being the coordinate e / 2 if that is whole."""
        b, lanes = self.b, self.cover.lanes
        odd = e & 1 if isinstance(e, int) else b.and_(e, ONE)
        found = self.vector(source, (e + odd) // 2 if isinstance(e, int) else b.ashr(b.add(e, odd), ONE), valid)
        for half in range(2):
            where = address(b, target, const(half * lanes), self.element)
            if isinstance(odd, int):
                self.put(self.apart(found, half, odd), where)
                continue
            value = b.select(b.icmp_signed("==", odd, ONE), *(self.apart(found, half, shift) for shift in (1, 0)))
            self.put(value, where)

    def apart(self, found: ir.Value, half: int, shift: int) -> ir.Value:
        """Half of a vector's elements with zeros between them, and in front of the first if there is a shift."""
        lanes = self.cover.lanes
        numbers = [half * lanes // 2 + k // 2 if k % 2 == shift else lanes for k in range(lanes)]
        return self.b.shuffle_vector(found, zero(found.type), ir.Constant(ir.VectorType(I32, lanes), numbers))

    def one_by_one(self, source: ir.Value, target: ir.Value, valid: ir.Value) -> None:
        """A row with a long step, or many zeros between its elements."""
        b, cover, slide = self.b, self.cover, self.cover.slides[-1]
        kind = scalar.in_memory(self.dtype)
        begin = self.beginning(len(cover.slides) - 1)
        with loop(b, ZERO, const(slide.step), short=True) as (phase, _), \
                loop(b, ZERO, const(cover.phase), short=True) as (i, _):
            u, some = self.coordinate(slide, b.add(begin, b.add(b.mul(i, const(slide.step)), phase)))
            some, before = b.and_(some, valid), b.block
            with b.if_then(some):
                stored = b.load(b.gep(source, [u], source_etype=kind), typ=kind)
                found, there = scalar.from_memory(b, stored, self.dtype), b.block
            value = b.phi(self.element)
            value.add_incoming(zero(self.element), before)
            value.add_incoming(found, there)
            b.store(value, address(b, target, b.add(b.mul(phase, const(cover.phase)), i), self.element))
