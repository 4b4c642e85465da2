"""The gradients of elementwise operators as programs: a few loops of NumPy's ufuncs in a row for each input.

What they are found by is the operator, in a dictionary that Python fills; then by element type and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tenon.cpython import object_layout
from tenon.cpython.eager.ndarray_access import ALIGNED, run_loop
from tenon.cpython.eager.tensor_objects import Objects, Offsets, SharedObject, drop, held, shared
from tenon.cpython.object_layout import LENGTH
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import POINTER, WORD, Pointer
from tenon.records import dataclass

MAX_INPUTS = 2
MAX_VALUES = 24                 # of a formula: given, constant and computed
GIVEN = 2                       # the gradient and the output, which come before the inputs

# Words of a program: the next one of this operator, the element type, how to add, how many inputs there are; for each
# input what it must be (0: a tensor) and where its formula is (0: it gets no gradient).
NEXT, DTYPE, ITEM, ADD, ADD_DATA, INPUT_COUNT, KINDS, FORMULAS = (*range(7), 6 + MAX_INPUTS)
HEAD = FORMULAS + MAX_INPUTS
# Words of a formula: how many rows there are and which value is the result; of a row: a loop, its data, and the places
# of what it reads, the second -1 where it reads one; or no loop, and a constant.
ROW_COUNT, RESULT, ROWS = range(3)
LOOP, LOOP_DATA, FIRST, SECOND, ROW_WORDS = range(5)
NO_PLACE = -1


@dataclass(frozen=True, eq=False)
class GradientProgram:
    """The gradients of an operator's inputs, for inputs of one element type, and numbers where they are these."""

    words: np.ndarray
    kept: tuple[Any, ...]           # what the words refer to


Row = np.ndarray | tuple[tuple[int, int], tuple[int, ...]]      # a constant; a loop and the places of what it reads


def program(dtype: np.dtype[Any], adds: tuple[int, int], kinds: Sequence[Any],
            formulas: Sequence[tuple[Sequence[Row], int] | None], following: GradientProgram | None) -> GradientProgram:
    """The program of formulas, each the rows and the place of the result; a kind is None for a tensor, or a number."""
    words = [0 if following is None else following.words.ctypes.data, id(dtype), dtype.itemsize, *adds, len(kinds),
             *[0] * (HEAD - KINDS)]
    for k, (kind, formula) in enumerate(zip(kinds, formulas, strict=True)):
        words[KINDS + k] = 0 if kind is None else id(kind)
        if formula is not None:
            words[FORMULAS + k] = len(words)
            rows, result = formula
            words += [len(rows), result]
            for row in rows:
                if isinstance(row, np.ndarray):
                    words += [0, id(row), 0, 0]
                else:
                    loop, places = row
                    words += [*loop, *places, *[-1] * (2 - len(places))]
    return GradientProgram(np.array(words, np.int64), (dtype, kinds, formulas, following))


def fits(arity: int, formulas: Sequence[Any]) -> bool:
    """Whether there is room for the values of formulas."""
    most = max((len(formula.rows) for formula in formulas if formula is not None), default=0)
    return arity <= MAX_INPUTS and GIVEN + arity + most <= MAX_VALUES


def define_formulas(module: NativeModule, objects: Objects) -> None:
    """What finds programs and runs their formulas, in a module that has these objects."""
    module.define("step_of", _step_of, WORD, POINTER, POINTER, POINTER)
    module.define("program", partial(_program, objects.offsets), POINTER, POINTER, POINTER)
    module.define("run_formula", _run_formula, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER)


def _program(at: Offsets, f: NativeFunction, node: Pointer, y: Pointer) -> None:
    """The gradients of a node with this output; null where they are Python's."""
    inputs = node.field(at.inputs)
    table = f.call("PyDict_GetItem", shared(f, SharedObject.PROGRAMS), node.field(at.op))
    f.require(~table.is_null())
    found = f.variable(table.field(object_layout.DATA))
    with f.loop(lambda: ~found().is_null()):
        now, same = found(), f.variable(1)
        count = now.word(INPUT_COUNT)
        same.set(((now.pointer(DTYPE) == y.field(object_layout.DTYPE))
                  & (inputs.behind(LENGTH).word() == count)).wide())
        with f.where(same() != 0), f.each(count) as k:
            kind, x = now.at(k).pointer(KINDS), inputs.at(k).behind(object_layout.ITEMS).pointer()
            is_tensor = kind.is_null() & (x.field(object_layout.TYPE) == shared(f, SharedObject.SAVED))
            same.set(same() & (is_tensor | (kind == x)).wide())
        with f.where(same() != 0):
            f.give(now)
        found.set(now.pointer(NEXT))
    f.give()


def _step_of(f: NativeFunction, g: Pointer, y: Pointer, program: Pointer) -> None:
    """How far apart the elements of a gradient are, which may be one number all over; NO_PLACE: it is unusual."""
    with f.unless(g.field(object_layout.TYPE) == shared(f, SharedObject.ARRAY)):
        f.give(NO_PLACE)
    with f.unless((g.field(object_layout.DTYPE) == program.pointer(DTYPE)) & (f.call("same_sizes", g, y) != 0)):
        f.give(NO_PLACE)
    with f.where(f.call("is_plain", g) != 0):
        f.give(program.word(ITEM))
    with f.where((g.half(object_layout.FLAGS) & ALIGNED) == 0):
        f.give(NO_PLACE)
    strides = g.field(object_layout.STRIDES)
    with f.each(g.half(object_layout.NDIM)) as k, f.unless(strides.word(k) == 0):
        f.give(NO_PLACE)
    f.give(0)


def _run_formula(f: NativeFunction, program: Pointer, formula: Pointer, values: Pointer, steps: Pointer,
                 y: Pointer) -> None:
    """The gradient of an input, from the values so far and how far apart their elements are; null: an error."""
    first, count, good = program.word(INPUT_COUNT) + GIVEN, formula.word(ROW_COUNT), f.variable(1)
    with f.each(count) as k:
        row, place = formula.at(k * ROW_WORDS + ROWS), first + k
        values.put(row.word(LOOP_DATA), place)
        steps.put(0, place)
        with f.unless(row.word(LOOP) == 0):
            values.put(0, place)
            with f.where(good() != 0):
                out = f.call("made", program.pointer(DTYPE), y)
                values.put(out, place)
                steps.put(program.word(ITEM), place)
                good.set((~out.is_null()).wide())
                with f.where(good() != 0):
                    one, two = row.word(FIRST), row.word(SECOND)
                    with f.where(two == NO_PLACE):
                        run_loop(f, row.at(LOOP), [values.pointer(one), out], [steps.word(one), program.word(ITEM)])
                    with f.unless(two == NO_PLACE):
                        run_loop(f, row.at(LOOP), [values.pointer(one), values.pointer(two), out],
                                 [steps.word(one), steps.word(two), program.word(ITEM)])
    result = f.variable(f.null())
    with f.where(good() != 0):
        result.set(held(f, values.pointer(formula.word(RESULT))))
    with f.each(count) as k:
        made = values.pointer(first + k)
        with f.unless((formula.at(k * ROW_WORDS + ROWS).word(LOOP) == 0) | made.is_null()):
            drop(f, made)
    f.give(result())
