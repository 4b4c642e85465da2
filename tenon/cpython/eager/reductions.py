"""`np.add.reduce` and the like as machine code: sums and extremes over axes that lie side by side, of few elements.

    reduce(array, axis, None, None, keepdims[, -inf])      # as NumPy takes it, and a recipe says it

NumPy's loop makes them, called as its iterator calls it: once a row where the last axes go, else once for every row
that is added to another.  What NumPy does around that takes ten times as long.  All else is the ufunc's own method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.cpython import object_layout
from tenon.cpython.eager.ndarray_access import MAX_ELEMENTS, count_of
from tenon.cpython.eager.tensor_objects import SharedObject, shared, unless_done
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, NOTHING, POINTER, WORD, Pointer, Word
from tenon.records import dataclass

MAX_AXES = 8
NEGATIVE_INFINITY = 0xFFF << 52         # as Python has it

# Words of a table: the method in Python, and rows: the element type, the loop and its data, how large an element is,
# whether there is a number that it starts with, the number, and minus infinity.
PYTHON, ROW_COUNT, ROWS = range(3)
DTYPE, LOOP, LOOP_DATA, ITEM, STARTS, START, LEAST, ROW_WORDS = range(8)


@dataclass(frozen=True)
class Total:
    """How elements of one type are combined: a loop, and the number it starts with; None: with the first element."""

    dtype: np.dtype[Any]
    loop: tuple[int, int]
    start: float | None


def table_of(python: Callable[..., Any], totals: Sequence[Total]) -> np.ndarray:
    """The words that the builtin reads."""
    words = [id(python), len(totals)]
    for row in totals:
        starts = [_bits(x, row.dtype) for x in (0.0 if row.start is None else row.start, -np.inf)]
        words += [id(row.dtype), *row.loop, row.dtype.itemsize, row.start is not None, *starts]
    return np.array(words, np.uint64)


def _bits(number: float, dtype: np.dtype[Any]) -> int:
    return int(np.array(number, dtype).view(f"u{dtype.itemsize}"))


def define_reductions(module: NativeModule) -> None:
    """The builtin, in a module that has arrays."""
    module.define("axes_of", _axes_of, HALF, POINTER, POINTER, WORD)
    module.define("combine", _combine, NOTHING, POINTER, POINTER, POINTER, WORD, WORD, WORD)
    module.define("reduced", _reduced, POINTER, POINTER, POINTER, WORD)
    module.define("reduce", _reduce, POINTER, POINTER, POINTER, WORD, public=True)


def _reduce(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    table = owner.field(object_layout.DATA)
    with f.where((count == 5) | (count == 6)):
        unless_done(f, f.call("reduced", table, arguments, count))
    f.give(f.call("PyObject_Vectorcall", table.pointer(PYTHON), arguments, count, f.null()))


def _reduced(f: NativeFunction, table: Pointer, arguments: Pointer, count: Word) -> None:
    """The array; null where it is not usual, or there is an error."""
    x, keep, none = arguments.pointer(), arguments.pointer(4), shared(f, SharedObject.NONE)
    f.require((f.call("is_plain",
                      x) != 0) & ((keep == shared(f, SharedObject.TRUE)) | (keep == shared(f, SharedObject.FALSE))))
    row = f.variable(f.null())
    with f.each(table.word(ROW_COUNT)) as k:
        found = table.at(k * ROW_WORDS + ROWS)
        with f.where(found.pointer(DTYPE) == x.field(object_layout.DTYPE)):
            row.set(found)
    f.require(~row().is_null() & (arguments.pointer(2) == none) & (arguments.pointer(3) == none))
    least = count == 6
    with f.where(least):
        first = arguments.pointer(5)
        f.require(first.field(object_layout.TYPE) == shared(f, SharedObject.FLOAT))
        f.require(first.behind(object_layout.DATA).word() == NEGATIVE_INFINITY)
    total = count_of(f, x)
    f.require((total != 0) & (total < MAX_ELEMENTS + 1))
    ndim, sizes, ends = x.half(object_layout.NDIM), x.field(object_layout.DIMENSIONS), f.words(2)
    f.require(ndim < MAX_AXES + 1)
    f.require(f.call("axes_of", ends, arguments.pointer(1), ndim) != 0)
    parts, shape, axes = [f.variable(1) for _ in range(3)], f.words(MAX_AXES), f.variable(0)
    with f.each(ndim) as k:
        before, behind = k < ends.word(), ~(k < ends.word(1))
        for part, which in zip(parts, (before, ~(before | behind), behind), strict=True):
            with f.where(which):
                part.set(part() * sizes.word(k))
        gone = ~(before | behind)
        with f.where(gone):
            shape.at(axes()).put(1)
        with f.unless(gone):
            shape.at(axes()).put(sizes.word(k))
        with f.unless(gone & (keep != shared(f, SharedObject.TRUE))):
            axes.set(axes() + 1)
    out = f.call("made_of", row().pointer(DTYPE), axes().low(), shape)
    f.require(~out.is_null())
    item, (outer, many, inner) = row().word(ITEM), (part() for part in parts)
    start = f.variable(f.null())
    with f.unless(row().word(STARTS) == 0):
        start.set(row().at(START))
    with f.where(least):
        start.set(row().at(LEAST))
    with f.each(outer) as k:
        target = out.field(object_layout.DATA).behind(k * inner * item)
        source, left = f.variable(x.field(object_layout.DATA).behind(k * many * inner * item)), f.variable(many)
        first_row = f.variable(start())
        with f.where(start().is_null()):
            first_row.set(source())
        step = f.variable(0)
        with f.where(start().is_null()):
            step.set(item)
            source.set(source().behind(inner * item))
            left.set(left() - 1)
        with f.each(inner) as n:
            given = first_row().behind(n * step())
            with f.where(item == 4):
                target.behind(n * item).put(given.narrow())
            with f.unless(item == 4):
                target.behind(n * item).put(given.word())
        f.call("combine", row(), target, source(), left(), inner, item)
    f.give(out)


def _combine(f: NativeFunction, row: Pointer, target: Pointer, source: Pointer, left: Word, inner: Word,
             item: Word) -> None:
    """Combine rows of elements with those of the target; rows of one element all at once."""
    f.require(left != 0)
    addresses, steps, count = f.words(3), f.words(3), f.words(1)
    for place in (0, 2):
        addresses.put(target, place)
    steps.put(item, 1)
    with f.where(inner == 1):
        addresses.put(source, 1)
        count.put(left)
        f.through(row.at(LOOP), NOTHING, addresses, count, steps, row.pointer(LOOP_DATA))
        f.give()
    for place in (0, 2):
        steps.put(item, place)
    count.put(inner)
    with f.each(left) as k:
        addresses.put(source.behind(k * inner * item), 1)
        f.through(row.at(LOOP), NOTHING, addresses, count, steps, row.pointer(LOOP_DATA))
    f.give()


def _axes_of(f: NativeFunction, ends: Pointer, axis: Pointer, ndim: Word) -> None:
    """Find the first of the axes that go, and the one behind them; 0: they do not lie side by side."""
    ends.put(0)
    ends.put(ndim, 1)
    with f.where(axis == shared(f, SharedObject.NONE)):
        f.give(1)
    with f.where(axis.field(object_layout.TYPE) == shared(f, SharedObject.INT)):
        beyond = f.words(1)
        one = f.variable(f.call("PyLong_AsLongLongAndOverflow", axis, beyond))
        f.require(beyond.half() == 0)
        with f.unless(one() < ndim):
            one.set(one() + ndim)
        f.require(one() < ndim)
        ends.put(one())
        ends.put(one() + 1, 1)
        f.give(1)
    f.require(axis.field(object_layout.TYPE) == shared(f, SharedObject.TUPLE))
    count, items = axis.behind(object_layout.LENGTH).word(), axis.behind(object_layout.ITEMS)
    f.require(count != 0)
    with f.each(count) as k:
        f.require(items.pointer(k).field(object_layout.TYPE) == shared(f, SharedObject.INT))
        beyond = f.words(1)
        now = f.call("PyLong_AsLongLongAndOverflow", items.pointer(k), beyond)
        f.require(beyond.half() == 0)
        with f.where(k == 0):
            ends.put(now)
        f.require((now == ends.word() + k) & (now < ndim))
    ends.put(ends.word() + count, 1)
    f.give(1)
