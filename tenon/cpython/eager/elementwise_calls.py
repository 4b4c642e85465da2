"""Elementwise eager calls of one or two inputs -> a Python builtin for each operator, which NumPy's loop computes.

    quick(x, y), turned(y, x)

What NumPy does around its loop, and Python around NumPy, takes ten times as long as the loop for ten numbers.  Whatever
is not usual (a capture, another element type, sizes that differ, many elements) is a call of the function in Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.cpython import object_layout
from tenon.cpython.eager.inline_cache import by_builtin
from tenon.cpython.eager.ndarray_access import MAX_ELEMENTS, run_loop, step_of
from tenon.cpython.eager.strided_iteration import Grid
from tenon.cpython.eager.tensor_objects import (
    Objects,
    Offsets,
    SharedObject,
    drop,
    held,
    require_eager,
    shared,
    unless_done,
)
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import BYTES, HALF, NOTHING, POINTER, WORD, Pointer, Word
from tenon.records import dataclass

MAX_PRODUCTS = 65536            # multiply-adds of a product of matrices

# Words of an operator's table: the operator, the function in Python, what finds numbers, and what it found last; rows.
OP, PYTHON_CALL, FIND, LAST_DTYPE, LAST_NUMBER, LAST_FOUND, ROW_COUNT, ROWS = range(8)
# Words of a row: the element type of the inputs, the loop and its data, the result's type, whether it has a gradient.
# whether rows may be computed one by one, and whether results are floating numbers.
DTYPE, LOOP, LOOP_DATA, ITEM, RESULT, RESULT_ITEM, DIFFERENTIABLE, IN_ROWS, FLOATING, ROW_WORDS = range(10)
# Builtins: the function of their usual call, and how many inputs it has.
BUILTINS = {"unary": ("of_one", 1), "binary": ("of_two", 2), "product": ("of_matrices", 2), "array": ("from_one", 1),
            "arrays": ("from_two", 2)}


@dataclass(frozen=True)
class LoopRow:
    """How an operator is computed for one element type."""

    dtype: np.dtype[Any]
    loop: tuple[int, int]           # address and data
    result: np.dtype[Any]
    in_rows: bool                   # whether the place in a row decides nothing but the sign of a NaN


def table_of_calls(op: Any, rows: Sequence[LoopRow], python: Callable[..., Any], find: Any = None) -> np.ndarray:
    """The words that an operator's builtins read."""
    table = np.zeros(ROWS + ROW_WORDS * len(rows), np.int64)
    none = id(None)
    table[:ROWS] = id(op), id(python), id(find), none, none, none, len(rows)
    for _ in range(3):                      # the references that the table has to what it remembers
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(None))
    for k, row in enumerate(rows):
        flag = row.result.kind in "fc"
        at = ROWS + ROW_WORDS * k
        table[at:at + ROW_WORDS] = (id(row.dtype), *row.loop, row.dtype.itemsize, id(row.result),
                                    row.result.itemsize, id(flag), row.in_rows, row.result.kind == "f")
    return table


def define_calls(module: NativeModule, objects: Objects) -> None:
    """The builtins, in a module that has these objects, arrays and remembered calls."""
    writer = _CallWriter(objects.offsets)
    module.define("row", _row, POINTER, POINTER, POINTER)
    module.define("from_one", _from_one, POINTER, POINTER, POINTER)
    module.define("is_finite", _is_finite, HALF, POINTER, POINTER, WORD)
    module.define("row_by_row", _row_by_row, POINTER, POINTER, POINTER, POINTER)
    module.define("from_two", _from_two, POINTER, POINTER, POINTER, POINTER)
    module.define("number", _number, POINTER, POINTER, POINTER, POINTER)
    module.define("result", writer.result, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, HALF)
    module.define("of_one", writer.of_one, POINTER, POINTER, POINTER)
    module.define("of_operands", writer.of_operands, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, HALF)
    module.define("of_two", writer.of_two, POINTER, POINTER, POINTER, POINTER)
    module.define("of_matrices", writer.of_matrices, POINTER, POINTER, POINTER, POINTER)
    for name, (call, inputs) in BUILTINS.items():
        module.define(name, _usual(call, inputs), POINTER, POINTER, POINTER, WORD, public=True)
    module.define("reflected", _reflected, POINTER, POINTER, POINTER, WORD, public=True)
    module.define("op_call", writer.op_call, POINTER, POINTER, POINTER, WORD, POINTER, public=True)


# ---------------------------------------------------------------- builtins: the usual call, or the one in Python

def _usual(call: str, inputs: int) -> Callable[[NativeFunction, Pointer, Pointer, Word], None]:
    """A builtin of so many inputs, whose usual call is this function."""
    def write(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
        table = owner.field(object_layout.DATA)
        with f.where(count == inputs):
            unless_done(f, f.call(call, table, *(arguments.pointer(k) for k in range(inputs))))
        f.give(f.call("PyObject_Vectorcall", table.pointer(PYTHON_CALL), arguments, count, f.null()))
    return write


def _reflected(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    table, turned = owner.field(object_layout.DATA), f.words(2)
    with f.where(count == 2):
        unless_done(f, f.call("of_two", table, arguments.pointer(1), arguments.pointer()))
        for k in range(2):
            turned.put(arguments.pointer(1 - k), k)
        f.give(f.call("PyObject_Vectorcall", table.pointer(PYTHON_CALL), turned, count, f.null()))
    f.give(f.call("PyObject_Vectorcall", table.pointer(PYTHON_CALL), arguments, count, f.null()))


# ---------------------------------------------------------------- the usual call; null: it is not usual, or an error

class _CallWriter:
    """The functions that look into Tenon's objects."""

    def __init__(self, offsets: Offsets):
        self.offsets = offsets

    def of_one(self, f: NativeFunction, table: Pointer, x: Pointer) -> None:
        require_eager(f)
        f.require(f.call("is_tensor", x) != 0)
        state = x.field(self.offsets.own)
        array, wanted = state.field(self.offsets.payload), self._wanted(f, state)
        out = f.call("from_one", table, array)
        f.require(~out.is_null())
        row = f.call("row", table, array.field(object_layout.DTYPE))
        f.give(f.call("result", table, row, x, f.null(), out, wanted))

    def of_two(self, f: NativeFunction, table: Pointer, x: Pointer, y: Pointer) -> None:
        require_eager(f)
        at = self.offsets
        first, second = f.call("is_tensor", x), f.call("is_tensor", y)
        with f.where((first & second) != 0):
            left, right = x.field(at.own), y.field(at.own)
            wanted = self._wanted(f, left) | self._wanted(f, right)
            f.give(f.call("of_operands", table, x, y, left.field(at.payload), right.field(at.payload), wanted))
        f.require((first | second) != 0)
        tensor, beside = f.variable(x), f.variable(y)
        with f.where(first == 0):
            tensor.set(y)
            beside.set(x)
        wanted = self._wanted(f, tensor().field(at.own))
        found = f.call("number", table, tensor().field(at.own).field(at.payload), beside())
        f.require(~found.is_null())
        literal, number = (found.field(object_layout.ITEMS + BYTES * k) for k in range(2))
        array = tensor().field(at.own).field(at.payload)    # now, since finding a number may have run Python
        with f.where(first != 0):
            out = f.call("of_operands", table, x, literal, array, number, wanted)
            drop(f, found)
            f.give(out)
        out = f.call("of_operands", table, literal, y, number, array, wanted)
        drop(f, found)
        f.give(out)

    def of_operands(self, f: NativeFunction, table: Pointer, x: Pointer, y: Pointer, a: Pointer, b: Pointer,
                    wanted: Word
                    ) -> None:
        """The call on these arrays, one of which may be a number's."""
        f.require(a.field(object_layout.TYPE) == shared(f, SharedObject.ARRAY))
        row = f.call("row", table, a.field(object_layout.DTYPE))      # now: afterwards the arrays may be gone
        out = f.call("from_two", table, a, b)
        f.require(~out.is_null())
        f.give(f.call("result", table, row, x, y, out, wanted))

    def of_matrices(self, f: NativeFunction, table: Pointer, x: Pointer, y: Pointer) -> None:
        """The product of two matrices, few multiply-adds."""
        require_eager(f)
        at = self.offsets
        f.require(f.call("says", shared(f, SharedObject.NARROW), shared(f, SharedObject.NONE)) != 0)
        f.require((f.call("is_tensor", x) & f.call("is_tensor", y)) != 0)
        left, right = x.field(at.own), y.field(at.own)
        a, b, wanted = left.field(at.payload), right.field(at.payload), self._wanted(f, left) | self._wanted(f, right)
        f.require((f.call("is_plain", a) & f.call("is_plain", b)) != 0)
        f.require((a.half(object_layout.NDIM) == 2) & (b.half(object_layout.NDIM) == 2))
        f.require(a.field(object_layout.DTYPE) == b.field(object_layout.DTYPE))
        row = f.call("row", table, a.field(object_layout.DTYPE))
        f.require(~row.is_null())
        (n, k), (depth, m) = ([z.field(object_layout.DIMENSIONS).word(place) for place in range(2)] for z in (a, b))
        f.require((k == depth) & (n < MAX_ELEMENTS) & (k < MAX_ELEMENTS) & (m < MAX_ELEMENTS))
        f.require((n * k * m != 0) & (n * k * m < MAX_PRODUCTS + 1))
        sizes, item = f.words(4), row.word(ITEM)
        for place, size in enumerate((n, m)):
            sizes.put(size, place)
        out = f.call("made_of", row.pointer(RESULT), f.half(2), sizes)
        f.require(~out.is_null())
        arrays, strides, one = f.words(3), f.words(9), f.word(1)
        for place, array in enumerate((a, b, out)):
            arrays.put(array.field(object_layout.DATA), place)
        for place, size in enumerate((one, n, k, m)):
            sizes.put(size, place)
        for place, step in enumerate((k, one, m, one, m, one)):
            strides.put(step * item, 3 + place)
        f.through(row.at(LOOP), NOTHING, arrays, sizes, strides, row.pointer(LOOP_DATA))
        f.give(f.call("result", table, row, x, y, out, wanted))

    def result(self, f: NativeFunction, table: Pointer, row: Pointer, x: Pointer, y: Pointer, out: Pointer, wanted: Word
               ) -> None:
        """The array as a tensor, recorded where that is wanted."""
        with f.where(wanted != 0):
            with f.where(f.call("says", shared(f, SharedObject.RECORDING), shared(f, SharedObject.TRUE)) != 0):
                f.give(f.call("recorded", table.pointer(OP), x, y, out, row.pointer(DIFFERENTIABLE)))
        f.give(f.call("tensor", out, shared(f, SharedObject.FALSE), held(f, shared(f, SharedObject.NONE))))

    def _wanted(self, f: NativeFunction, state: Pointer) -> Word:
        """Whether a tensor has a gradient, which is True or False where it is usual."""
        flag = state.field(self.offsets.requires_grad)
        f.require((flag == shared(f, SharedObject.TRUE)) | (flag == shared(f, SharedObject.FALSE)))
        return (flag == shared(f, SharedObject.TRUE)).wide().low()

    def op_call(self, f: NativeFunction, op: Pointer, arguments: Pointer, count: Word, names: Pointer) -> None:
        """`op(*arguments)`: by its builtin where it has one and nothing is named, else in Python."""
        by_builtin(f, self.offsets, op, arguments, count, names)
        unless_done(f, f.call("from_call", op, arguments, count, names))
        further = f.variable(count)
        with f.unless(names.is_null()):
            further.set(count + names.behind(object_layout.LENGTH).word())
        given = f.call("PyMem_Malloc", (further() + 1) * BYTES)
        f.require(~given.is_null())
        given.put(op)
        with f.each(further()) as k:
            given.at(k + 1).put(arguments.pointer(k))
        out = f.call("PyObject_Vectorcall", shared(f, SharedObject.CALL), given, count + 1, names)
        f.call("PyMem_Free", given)
        f.give(out)


def _from_one(f: NativeFunction, table: Pointer, array: Pointer) -> None:
    """The array that the loop makes of this one."""
    f.require(f.call("is_plain", array) != 0)
    row = f.call("row", table, array.field(object_layout.DTYPE))
    f.require(~row.is_null())
    out = f.call("made", row.pointer(RESULT), array)
    f.require(~out.is_null())
    run_loop(f, row.at(LOOP), [array, out], [step_of(f, array, row.word(ITEM)), row.word(RESULT_ITEM)])
    f.give(out)


def _from_two(f: NativeFunction, table: Pointer, a: Pointer, b: Pointer) -> None:
    """The array that the loop makes of these, of the same sizes, or one a number's, or one after the other's row."""
    array = shared(f, SharedObject.ARRAY)
    f.require((a.field(object_layout.TYPE) == array) & (b.field(object_layout.TYPE) == array))
    dtype = a.field(object_layout.DTYPE)
    f.require(b.field(object_layout.DTYPE) == dtype)
    row = f.call("row", table, dtype)
    f.require(~row.is_null())
    alike = f.variable((f.call("is_plain", a) & f.call("is_plain", b)).wide())
    like = f.variable(a)
    with f.where(alike() != 0), f.where(f.call("same_sizes", a, b) == 0), f.unless(b.half(object_layout.NDIM) == 0):
        alike.set((a.half(object_layout.NDIM) == 0).wide())
        like.set(b)
    with f.where(alike() == 0):
        f.give(f.call("row_by_row", row, a, b))
    out = f.call("made", row.pointer(RESULT), like())
    f.require(~out.is_null())
    run_loop(f, row.at(LOOP), [a, b, out], [*[step_of(f, x, row.word(ITEM)) for x in (a, b)], row.word(RESULT_ITEM)])
    f.give(out)


def _row_by_row(f: NativeFunction, row: Pointer, a: Pointer, b: Pointer) -> None:
    """The array that the loop makes of arrays that broadcast, or are parts of others: one call a row, as NumPy does.

    Not where there is a NaN, or may be: NumPy's iterator may copy several rows to one, and the place in a row decides
    which sign the NaN of two has.
    """
    f.require(row.word(IN_ROWS) != 0)
    grid = Grid(f, [a, b])
    sizes = grid.sizes
    grid.join()
    out = f.call("made_of", row.pointer(RESULT), grid.ndim.low(), sizes)
    f.require(~out.is_null())
    with f.where(grid.total() != 0):
        grid.run(row.at(LOOP), out, row.word(RESULT_ITEM))
    with f.unless(row.word(FLOATING) == 0), f.where(f.call("is_finite", row, out, grid.total()) == 0):
        drop(f, out)
        f.give()
    f.give(out)


def _is_finite(f: NativeFunction, row: Pointer, array: Pointer, count: Word) -> None:
    """Whether all elements of an array of floating numbers are finite."""
    elements = array.field(object_layout.DATA)
    with f.where(row.word(RESULT_ITEM) == 4):
        f.give(f.call("finite_f", elements, count))
    f.give(f.call("finite_d", elements, count))


def _row(f: NativeFunction, table: Pointer, dtype: Pointer) -> None:
    """How the operator is computed for an element type."""
    with f.each(table.word(ROW_COUNT)) as k:
        row = table.at(k * ROW_WORDS + ROWS)
        with f.where(row.pointer(DTYPE) == dtype):
            f.give(row)
    f.give()


def _number(f: NativeFunction, table: Pointer, array: Pointer, number: Pointer) -> None:
    """(a literal, an array of no axes) for a number beside a tensor; the last one is remembered by its identity."""
    f.require(array.field(object_layout.TYPE) == shared(f, SharedObject.ARRAY))
    kind, dtype = number.field(object_layout.TYPE), array.field(object_layout.DTYPE)
    f.require((kind == shared(f, SharedObject.FLOAT)) | (kind == shared(f, SharedObject.INT)))
    with f.where((number == table.pointer(LAST_NUMBER)) & (dtype == table.pointer(LAST_DTYPE))):
        f.give(held(f, table.pointer(LAST_FOUND)))
    given = f.words(2)
    given.put(held(f, dtype))
    given.put(number, 1)
    found = f.call("PyObject_Vectorcall", table.pointer(FIND), given, f.word(2), f.null())
    with f.where(found.is_null()):
        drop(f, dtype)
        f.give()
    for place, now in ((LAST_DTYPE, dtype), (LAST_NUMBER, held(f, number)), (LAST_FOUND, held(f, found))):
        before = table.pointer(place)
        table.put(now, place)
        drop(f, before)
    f.give(found)
