"""`np.where(condition, x, y)` as machine code, for few elements: arrays of the condition's sizes, or of no axes.

What NumPy does around it takes longer than choosing among a thousand elements.  All else is NumPy's own function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from tenon.cpython import object_layout
from tenon.cpython.eager.ndarray_access import count_of
from tenon.cpython.eager.tensor_objects import unless_done
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, NOTHING, POINTER, WORD, Pointer, Word

LANES = 16              # elements at once; the processor's registers may hold fewer
BYTE = ir.IntType(8)

# Words of a table: the function in Python, the element type of conditions, and rows: an element type, and its size.
PYTHON, TRUTH, ROW_COUNT, ROWS = range(4)
DTYPE, ITEM, ROW_WORDS = range(3)


def table_of_selection(python: Callable[..., Any], dtypes: Sequence[np.dtype[Any]]) -> np.ndarray:
    """The words that the builtin reads."""
    rows = [word for dtype in dtypes for word in (id(dtype), dtype.itemsize)]
    return np.array([id(python), id(np.dtype(bool)), len(dtypes), *rows], np.uint64)


def define_selection(module: NativeModule) -> None:
    """The builtin, in a module that has arrays."""
    for kind in (HALF, WORD):
        module.define(f"choose_{kind.width}", _choose(kind), NOTHING, *[POINTER] * 4, *[WORD] * 3)
    module.define("elements", _elements, POINTER, POINTER, POINTER, POINTER, WORD)
    module.define("chosen", _chosen, POINTER, POINTER, POINTER, POINTER, POINTER)
    module.define("where", _where, POINTER, POINTER, POINTER, WORD, public=True)


def _where(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    table = owner.field(object_layout.DATA)
    with f.where(count == 3):
        unless_done(f, f.call("chosen", table, *(arguments.pointer(k) for k in range(3))))
    f.give(f.call("PyObject_Vectorcall", table.pointer(PYTHON), arguments, count, f.null()))


def _chosen(f: NativeFunction, table: Pointer, condition: Pointer, x: Pointer, y: Pointer) -> None:
    """The array; null where it is not usual, or there is an error."""
    for array in (condition, x, y):
        f.require(f.call("is_plain", array) != 0)
    dtype, item = x.field(object_layout.DTYPE), f.variable(0)
    f.require((condition.field(object_layout.DTYPE) == table.pointer(TRUTH)) & (y.field(object_layout.DTYPE) == dtype))
    with f.each(table.word(ROW_COUNT)) as k:
        row = table.at(k * ROW_WORDS + ROWS)
        with f.where(row.pointer(DTYPE) == dtype):
            item.set(row.word(ITEM))
    f.require(item() != 0)
    starts, steps = [], []
    for array in (x, y):
        copies = f.words(LANES)
        starts.append(f.call("elements", array, condition, copies, item()))
        f.require(~starts[-1].is_null())
        steps.append(f.variable(item()))
        with f.where(starts[-1] == copies):
            steps[-1].set(0)
    out = f.call("made", dtype, condition)
    f.require(~out.is_null())
    target, flags, count = out.field(object_layout.DATA), condition.field(object_layout.DATA), count_of(f, out)
    for kind in (HALF, WORD):
        with f.where(item() == kind.width // 8):
            f.call(f"choose_{kind.width}", target, flags, *starts, *[step() for step in steps], count)
    f.give(out)


def _elements(f: NativeFunction, array: Pointer, condition: Pointer, copies: Pointer, item: Word) -> None:
    """Where the elements of an array are, or copies of its only one; null where its sizes are others."""
    first = array.field(object_layout.DATA)
    with f.where(f.call("same_sizes", array, condition) != 0):
        f.give(first)
    f.require(array.half(object_layout.NDIM) == 0)
    with f.each(f.word(LANES)) as k:
        with f.where(item == 4):
            copies.behind(k * 4).put(first.narrow())
        with f.unless(item == 4):
            copies.at(k).put(first.word())
    f.give(copies)


def _choose(kind: ir.IntType) -> Callable[..., None]:
    """Write the elements of x where the condition holds, else those of y; as many at once as there are lanes."""
    def write(f: NativeFunction, out: Pointer, condition: Pointer, x: Pointer, y: Pointer, x_step: Word, y_step: Word,
              count: Word) -> None:
        done = f.variable(0)

        def loaded(place: Pointer, element: ir.IntType, lanes: int) -> ir.Value:
            return f.b.load(place.value, align=1, typ=ir.VectorType(element, lanes))
        for lanes in (LANES, 1):
            with f.loop(lambda lanes=lanes: done() + lanes < count + 1):        # type: ignore[misc]
                k = done()
                flags = loaded(condition.behind(k), BYTE, lanes)
                holds = f.b.icmp_unsigned("!=", flags, ir.Constant(flags.type, None))
                both = [loaded(place.behind(k * step), kind, lanes) for place, step in ((x, x_step), (y, y_step))]
                f.b.store(f.b.select(holds, *both), out.behind(k * (kind.width // 8)).value, align=1)
                done.set(k + lanes)
        f.give()
    return write
