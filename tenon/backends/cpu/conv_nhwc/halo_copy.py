"""The input of a block's windows, with its halo of zeros -> a copy in which every tap is at a known distance.

    copy[t, ..., channels] = element at t + shift, or 0 where nothing is        channels are neighbours in memory
    copy[..., channels, t]                                                      the last places are

Everything else about windows is in `tenon.loops.window_access`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    address,
    between,
    const,
    load_vector,
    loop,
    masked_load,
    masked_store,
    maximum,
    minimum,
    store_vector,
    zero,
)
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import I32
from tenon.loops.affine import affine
from tenon.loops.expressions import Index, Load
from tenon.loops.window_access import Axis, Slide, Windows, count, windows_of
from tenon.records import dataclass

VECTORS_AT_ONCE = 4     # vectors that are copied
MAX_LINE_PLACES = 1024  # places of a copy in which every channel is a line


@dataclass(frozen=True)
class Border:
    """How the copy lies: the slides, of the first of which a copy has `most` places at most, and the channels."""

    windows: Windows
    channels_last: bool
    most: int

    @property
    def slides(self) -> tuple[Slide, ...]:
        return self.windows.slides

    @property
    def places(self) -> Axis:
        """The indices that windows slide along."""
        return tuple(slide.place for slide in self.slides)

    @property
    def channels(self) -> int:
        """How many elements lie at a coordinate."""
        return count(self.windows.channels)

    @property
    def covered(self) -> tuple[int, ...]:
        """Coordinates along each slide, of as many places as a copy has."""
        first, *others = self.slides
        return first.covered(self.most), *(slide.covered(slide.places) for slide in others)

    @property
    def pitches(self) -> tuple[int, ...]:
        """Elements between neighbours along each slide, then along channels."""
        *outer, last = self.covered
        if self.channels_last:
            sizes = [*outer, last, self.channels]
            pitches = [prod(sizes[k + 1:]) for k in range(len(sizes))]
            return tuple(pitches)
        sizes = [*outer, self.channels, last]
        pitches = [prod(sizes[k + 1:]) for k in range(len(sizes))]
        return (*pitches[:-2], pitches[-1], pitches[-2])

    @property
    def strides(self) -> dict[Index, int]:
        """Elements of the copy from one place of each index to the next; indices outside of the copy move nothing."""
        found = dict.fromkeys(self.windows.outside, 0)
        for slide, pitch in zip(self.slides, self.pitches, strict=False):
            found[slide.place] = slide.step * pitch
            if slide.tap is not None:
                found[slide.tap] = slide.reach * pitch
        apart = self.pitches[-1]
        for index in reversed(self.windows.channels):
            found[index] = apart
            apart *= count((index,))
        return found

    @property
    def spread(self) -> float:
        """Elements of the copy for each window."""
        return prod(self.covered) * self.channels / prod([self.most, *(slide.places for slide in self.slides[1:])])

    def elements(self, places: int) -> int:
        """Of a copy for so many places along the first slide."""
        lines = self.slides[0].covered(min(places, self.most))
        if len(self.slides) == 1 and not self.channels_last:
            lines = self.covered[0]                 # a line of each channel
        return lines * prod(self.covered[1:]) * self.channels

    def emit(self, values: Values, copy: ir.Value, first: ir.Value, places: int, lanes: int) -> None:
        """Copy for so many places from `first` on; what is outside of the windows is known to `values`."""
        _HaloCopy(self, values, copy, first, places, lanes).emit()


def border_of(load: Load, rows: Axis, depth: Axis) -> Border | None:
    """How to copy what windows cover where some reach over the edge; None where no copy is like that."""
    windows = windows_of(load, rows, depth)
    if windows is None or any(slide.spread > 1 or slide.reach < 0 for slide in windows.slides):
        return None
    steps = {i: affine(windows.base).terms.get(i, 0) for i in windows.channels}
    apart = 1
    for index in reversed(windows.channels):
        if steps[index] != apart:
            break
        apart *= count((index,))
    else:
        return Border(windows, True, windows.slides[0].places)
    if windows.slides[-1].stride != 1:
        return None
    most = windows.slides[0].places
    return Border(windows, False, most if len(windows.slides) > 1 else min(most, MAX_LINE_PLACES))


class _HaloCopy:
    """Writes the loops that copy."""

    def __init__(self, border: Border, values: Values, copy: ir.Value, first: ir.Value, places: int,
                 lanes: int) -> None:
        self.border, self.values, self.b, self.copy = border, values, values.b, copy
        self.first, self.windows, self.lanes = first, border.windows, lanes
        self.element = scalar.register(self.windows.load.dtype)
        self.lines = (border.slides[0].covered(min(places, border.most)), *border.covered[1:])

    def emit(self) -> None:
        """All of the copy."""
        channels = self.windows.channels if not self.border.channels_last else ()
        with loop(self.b, ZERO, const(count(channels)), short=True) as (channel, _):
            known = self.windows.channels if self.border.channels_last else ()
            self.values.known.update(dict.fromkeys(known, ZERO))
            bind_indices(self.values, channels, channel)
            base = self.values.address(self.windows.load.buffer, self.windows.base)
            place = self.b.mul(channel, const(self.border.pitches[-1]))
            with self.loops(0) as (offset, some, at):
                self.row(address(self.b, base, offset, self.element),
                         address(self.b, self.copy, self.b.add(at, place), self.element), some)

    @contextmanager
    def loops(self, axis: int) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """Loops over all lines from this slide on: (offset in memory, whether there is one, place in the copy)."""
        b, slides = self.b, self.border.slides
        if axis == len(slides) - 1:
            yield ZERO, ir.Constant(ir.IntType(1), 1), ZERO
            return
        slide = slides[axis]
        with loop(b, ZERO, const(self.lines[axis]), short=True) as (t, _), self.loops(axis + 1) as (offset, valid, at):
            u = b.add(t, self.beginning(axis))
            some = b.and_(b.icmp_signed(">=", u, const(slide.low)), b.icmp_signed("<", u, const(slide.high)))
            yield (b.add(offset, b.mul(u, const(slide.stride))), b.and_(some, valid),
                   b.add(at, b.mul(t, const(self.border.pitches[axis]))))

    def beginning(self, axis: int) -> ir.Value:
        """The coordinate of the first element of the copy along a slide."""
        slide = self.border.slides[axis]
        start = self.b.mul(self.first, const(slide.step)) if axis == 0 else ZERO
        return self.b.add(start, const(slide.shift))

    def row(self, source: ir.Value, target: ir.Value, some: ir.Value) -> None:
        """One line: zeros, the elements that there are, zeros; `source` is coordinate 0."""
        b, slide = self.b, self.border.slides[-1]
        begin, length = self.beginning(len(self.border.slides) - 1), const(self.lines[-1])
        low = minimum(b, maximum(b, b.sub(const(slide.low), begin), ZERO), length)
        high = maximum(b, minimum(b, b.sub(const(slide.high), begin), length), low)
        high = b.select(some, high, low)
        channels = const(self.border.channels if self.border.channels_last else 1)
        self.fill(target, ZERO, b.mul(low, channels))
        self.fill(target, b.mul(high, channels), b.mul(length, channels))
        at = address(b, source, b.mul(b.add(begin, low), const(slide.stride)), self.element)
        to = address(b, target, b.mul(low, channels), self.element)
        if slide.stride == channels.constant:
            self.move(at, to, b.mul(b.sub(high, low), channels))
            return
        with loop(b, ZERO, b.sub(high, low), short=True) as (i, _):
            self.move(address(b, at, b.mul(i, const(slide.stride)), self.element),
                      address(b, to, b.mul(i, channels), self.element), channels)

    def move(self, source: ir.Value, target: ir.Value, size: ir.Value) -> None:
        """So many elements, in vectors, some of them at a time; the last ones behind masks."""
        b, several = self.b, VECTORS_AT_ONCE * self.lanes
        whole = b.sub(size, b.urem(size, const(several)))
        with loop(b, ZERO, whole, const(several), short=True) as (i, _):
            places = [b.add(i, const(k * self.lanes)) for k in range(VECTORS_AT_ONCE)]
            values = [load_vector(b, address(b, source, at, self.element), self.element, self.lanes) for at in places]
            for at, value in zip(places, values, strict=True):
                store_vector(b, value, address(b, target, at, self.element))
        source, target = (address(b, x, whole, self.element) for x in (source, target))
        with self.vectors(b.sub(size, whole)) as (i, mask):
            value = masked_load(b, address(b, source, i, self.element), mask, self.none)
            masked_store(b, value, address(b, target, i, self.element), mask)

    def fill(self, target: ir.Value, start: ir.Value, end: ir.Value) -> None:
        """Zeros from one element to another."""
        with self.vectors(self.b.sub(end, start)) as (i, mask):
            masked_store(self.b, self.none, address(self.b, target, self.b.add(start, i), self.element), mask)

    @contextmanager
    def vectors(self, size: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """(element, mask) of the vectors of a line."""
        b, lanes = self.b, self.lanes
        with loop(b, ZERO, size, const(lanes), short=True) as (i, _):
            rest = b.trunc(minimum(b, b.sub(size, i), const(lanes)), I32)
            yield i, between(b, ir.Constant(I32, 0), rest, lanes)

    @property
    def none(self) -> ir.Constant:
        return zero(ir.VectorType(self.element, self.lanes))
