"""Arrays that broadcast, or that are parts of others -> the rows that NumPy's iterator calls a loop for.

Only arrays whose axes lie in order, the last one closest, as they do but in transposed ones: what is made of these has
its axes in order too.  Axes that follow on each other in all of them are one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.cpython import object_layout
from tenon.cpython.eager.ndarray_access import ALIGNED, MAX_ELEMENTS
from tenon.llvm.function_builder import NativeFunction
from tenon.llvm.ir_values import NOTHING, Pointer, Variable, Word

MAX_AXES = 6
FARTHEST = 1 << 40          # a step below zero is beyond it


class Grid:
    """The sizes that arrays have together, and how far apart their elements are; null is returned where it is not one.

    `sizes` stand as in a shape, until `join` lets the row stand first.
    """

    def __init__(self, f: NativeFunction, arrays: Sequence[Pointer]):
        self.f, self.arrays = f, arrays
        self.sizes, self.steps = f.words(MAX_AXES), [f.words(MAX_AXES) for _ in arrays]
        self.total, self.axes = f.variable(1), f.variable(0)
        most = f.variable(0)
        for array in arrays:
            f.require((array.half(object_layout.FLAGS) & ALIGNED) != 0)
            with f.where(array.half(object_layout.NDIM) > most()):
                most.set(array.half(object_layout.NDIM))
        self.ndim = most()
        f.require(self.ndim < MAX_AXES + 1)
        least = [f.variable(FARTHEST) for _ in arrays]
        with f.each(self.ndim) as k:
            size = f.variable(1)
            for array, steps, before in zip(arrays, self.steps, least, strict=True):
                own, step = self._axis(array, k)
                with f.unless(own == 1):
                    f.require((size() == 1) | (size() == own))
                    size.set(own)
                    f.require(step < before() + 1)
                    before.set(step)
                    steps.at(k).put(step)
            self.sizes.at(k).put(size())
            f.require(size() < MAX_ELEMENTS + 1)
            self.total.set(self.total() * size())
        f.require(self.total() < MAX_ELEMENTS + 1)

    def _axis(self, array: Pointer, k: Word) -> tuple[Word, Word]:
        """The size and step of an array along an axis of them all; 1 where it lacks it."""
        f, count = self.f, array.half(object_layout.NDIM)
        size, step = f.variable(1), f.variable(0)
        with f.unless(k + count < self.ndim):
            place = k + count - self.ndim
            size.set(array.field(object_layout.DIMENSIONS).word(place))
            step.set(array.field(object_layout.STRIDES).word(place))
        return size(), step()

    def join(self) -> None:
        """Leave out axes of one, let those that follow on each other be one, and the last one stand first."""
        f = self.f
        sizes, steps = f.words(MAX_AXES), [f.words(MAX_AXES) for _ in self.arrays]
        with f.each(self.ndim) as n:
            k = self.ndim - n - 1
            size = self.sizes.word(k)
            with f.unless(size == 1):
                last, follows = self.axes() - 1, f.variable(0)
                with f.unless(self.axes() == 0):
                    follows.set(1)
                    for now, before in zip(steps, self.steps, strict=True):
                        follows.set(follows() & (before.word(k) == now.word(last) * sizes.word(last)).wide())
                with f.where(follows() != 0):
                    sizes.at(last).put(sizes.word(last) * size)
                with f.where(follows() == 0):
                    sizes.at(self.axes()).put(size)
                    for now, before in zip(steps, self.steps, strict=True):
                        now.at(self.axes()).put(before.word(k))
                    self.axes.set(self.axes() + 1)
        with f.where(self.axes() == 0):         # of one element
            sizes.put(1)
        self.sizes, self.steps = sizes, steps

    def run(self, loop: Pointer, out: Pointer, item: Word) -> None:
        """Let a loop, which stands there with its data, fill an array without gaps, row by row."""
        f, row = self.f, self.sizes.word()
        addresses, strides, count = f.words(len(self.arrays) + 1), f.words(len(self.arrays) + 1), f.words(1)
        count.put(row)
        for place, step in enumerate((*(steps.word() for steps in self.steps), item)):
            strides.put(step, place)
        places, offsets = f.words(MAX_AXES), [f.variable(0) for _ in self.arrays]
        with f.each(self.total() // row) as k:
            for place, (array, offset) in enumerate(zip(self.arrays, offsets, strict=True)):
                addresses.put(array.field(object_layout.DATA).behind(offset()), place)
            addresses.put(out.field(object_layout.DATA).behind(k * row * item), len(self.arrays))
            f.through(loop, NOTHING, addresses, count, strides, loop.pointer(1))
            self._go_on(places, offsets)

    def _go_on(self, places: Pointer, offsets: Sequence[Variable[Word]]) -> None:
        """Go to the next row: one place further along an axis, and along the axis before it where this one ends."""
        f, axis = self.f, self.f.variable(1)
        with f.loop(lambda: axis() < self.axes()):
            k = axis()
            now, size = places.word(k) + 1, self.sizes.word(k)
            with f.where(now < size):
                places.at(k).put(now)
                axis.set(self.axes())
                for offset, steps in zip(offsets, self.steps, strict=True):
                    offset.set(offset() + steps.word(k))
            with f.unless(now < size):
                places.at(k).put(0)
                axis.set(k + 1)
                for offset, steps in zip(offsets, self.steps, strict=True):
                    offset.set(offset() - (size - 1) * steps.word(k))
