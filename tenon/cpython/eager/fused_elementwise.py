"""Steps of a recipe that go element by element, as one builtin: loops of ufuncs, and choices, part after part of the
arrays, so that what one loop writes lies close when the next one reads it.

    fused(x, number)        # 1 / (1 + np.exp(-x)): four loops and one new array

Parts begin where NumPy's loops begin anew too, so that every element has the bits that the whole array would give it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.cpython import object_layout
from tenon.cpython.eager.ndarray_access import count_of
from tenon.cpython.eager.tensor_objects import drop, unless_done
from tenon.cpython.eager.where import LANES
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, NOTHING, POINTER, WORD, Pointer, Word
from tenon.records import dataclass

PART = 1024             # elements at once: many times what a loop does in one iteration
MAX_GIVEN, MAX_ROWS, MAX_OUTS, MAX_SLOTS = 8, 16, 4, 5
MAX_AXES = 8

# Words of a table: the function in Python; how many arrays are given, rows there are, and results; how many axes and
# elements results have, and their sizes.  Then what is given: its element type, and a step that is 0 for one element;
# the rows; and the results' element types.
PYTHON, GIVEN, ROWS, OUTS, NDIM, TOTAL, SIZES = range(7)
ARRAYS = SIZES + MAX_AXES
DTYPE, STEP, ARRAY_WORDS = range(3)             # of what is given; a result has no step
# A row: a loop and its data, or 0 and the size of an element to choose; what it reads, and where it writes: which
# result, or in which slot, counted from the last result; and the size of an element there.
LOOP, LOOP_DATA, FIRST, SECOND, THIRD, OUT, ITEM, ROW_WORDS = range(8)
NOTHING_READ = -1


@dataclass(frozen=True)
class FusedRow:
    """A loop with its data, or the size of an element that is chosen; the values it reads, counted from those given on;
    where it writes; and the element type of that."""

    loop: tuple[int, int]
    reads: tuple[int, ...]
    out: int
    dtype: np.dtype[Any]


def table_of_rows(python: Callable[..., Any], shape: Sequence[int], given: Sequence[tuple[np.dtype[Any], bool]],
                  rows: Sequence[FusedRow], outs: Sequence[np.dtype[Any]]) -> np.ndarray:
    """The words that the builtin reads; of what is given the element type, and whether it is one number."""
    words = [id(python), len(given), len(rows), len(outs), len(shape), int(np.prod(shape)), *shape,
             *[0] * (MAX_AXES - len(shape))]
    for dtype, number in given:
        words += [id(dtype), 0 if number else dtype.itemsize]
    for row in rows:
        words += [*row.loop, *row.reads, *[NOTHING_READ] * (3 - len(row.reads)), row.out, row.dtype.itemsize]
    for dtype in outs:
        words += [id(dtype), dtype.itemsize]
    return np.array(words, np.int64)


def define_rows(module: NativeModule) -> None:
    """The builtin, in a module that has arrays and choices."""
    module.define("row_of", _row_of, NOTHING, POINTER, POINTER, POINTER, WORD, WORD)
    module.define("fused_arrays", _fused_arrays, POINTER, POINTER, POINTER)
    module.define("fused", _fused, POINTER, POINTER, POINTER, WORD, public=True)


def _fused(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    table = owner.field(object_layout.DATA)
    with f.where(count == table.word(GIVEN)):
        unless_done(f, f.call("fused_arrays", table, arguments))
    f.give(f.call("PyObject_Vectorcall", table.pointer(PYTHON), arguments, count, f.null()))


def _fused_arrays(f: NativeFunction, table: Pointer, arguments: Pointer) -> None:
    """The result, or the tuple of several; null where arrays do not lie as is usual, or there is an error."""
    most = MAX_GIVEN + MAX_ROWS
    places, steps, moves, outs = f.words(most), f.words(most), f.words(most), f.words(MAX_OUTS)
    given, rows, total = table.word(GIVEN), table.word(ROWS), table.word(TOTAL)
    with f.each(given) as k:
        x, about = arguments.pointer(k), table.at(k * ARRAY_WORDS + ARRAYS)
        f.require(f.call("is_plain", x) != 0)
        f.require(x.field(object_layout.DTYPE) == about.pointer(DTYPE))
        count, alone = count_of(f, x), about.word(STEP) == 0
        f.require((alone & (count == 1)) | (~alone & (count == total)))
        places.at(k).put(x.field(object_layout.DATA))
        for words in (steps, moves):
            words.at(k).put(about.word(STEP))
    first_row = table.at(given * ARRAY_WORDS + ARRAYS)
    results, many = first_row.at(rows * ROW_WORDS), table.word(OUTS)
    good = f.variable(1)
    with f.each(many) as k:
        made = f.call("made_of", results.at(k * ARRAY_WORDS).pointer(DTYPE), table.word(NDIM).low(), table.at(SIZES))
        outs.at(k).put(made)
        with f.where(made.is_null()):
            good.set(0)
    with f.where(good() == 0):
        with f.each(many) as k, f.unless(outs.at(k).pointer().is_null()):
            drop(f, outs.at(k).pointer())
        f.give()
    slots = _room(f, MAX_SLOTS * PART)
    with f.each(rows) as k:
        row, value = first_row.at(k * ROW_WORDS), given + k
        steps.at(value).put(row.word(ITEM))
        with f.where(row.word(OUT) < many):
            places.at(value).put(outs.at(row.word(OUT)).pointer().field(object_layout.DATA))
            moves.at(value).put(row.word(ITEM))
        with f.unless(row.word(OUT) < many):
            places.at(value).put(slots.at((row.word(OUT) - many) * PART))
    done = f.variable(0)
    with f.loop(lambda: done() < total):
        left = f.variable(total - done())
        with f.where(left() > PART):
            left.set(PART)
        with f.each(rows) as k:
            f.call("row_of", first_row.at(k * ROW_WORDS), places, steps, given + k, left())
        with f.each(given + rows) as k:
            places.at(k).put(places.at(k).word() + moves.at(k).word() * PART)
        done.set(done() + PART)
    with f.where(many == 1):
        f.give(outs.pointer())
    listed = f.call("PyTuple_New", many)
    with f.where(listed.is_null()):
        with f.each(many) as k:
            drop(f, outs.at(k).pointer())
        f.give()
    with f.each(many) as k:
        listed.at(k).behind(object_layout.ITEMS).put(outs.at(k).pointer())
    f.give(listed)


def _room(f: NativeFunction, words: int) -> Pointer:
    """Memory of the function's own, with anything in it."""
    with f.b.goto_entry_block():
        room = f.b.alloca(WORD, size=words)
        room.type = POINTER
    return Pointer(f.b, room)


def _row_of(f: NativeFunction, row: Pointer, places: Pointer, steps: Pointer, value: Word, count: Word) -> None:
    """Write a part of a value."""
    addresses, strides, counts = f.words(3), f.words(3), f.words(1)
    first, second, out = row.word(FIRST), row.word(SECOND), places.at(value).pointer()
    with f.where(row.word(LOOP) == 0):
        _choice(f, row, places, steps, out, count)
        f.give()
    one = second == NOTHING_READ
    for words, of in ((addresses, places), (strides, steps)):
        words.put(of.at(first).word())
        with f.where(one):
            words.put(of.at(value).word(), 1)
        with f.unless(one):
            words.put(of.at(second).word(), 1)
            words.put(of.at(value).word(), 2)
    counts.put(count)
    f.through(row.at(LOOP), NOTHING, addresses, counts, strides, row.pointer(LOOP_DATA))
    f.give()


def _choice(f: NativeFunction, row: Pointer, places: Pointer, steps: Pointer, out: Pointer, count: Word) -> None:
    """Choose elements of two values, each of which may be one number."""
    item, given, moves = row.word(LOOP_DATA), [], []
    for place in (SECOND, THIRD):
        step, copies = steps.at(row.word(place)).word(), f.words(LANES)
        start = f.variable(places.at(row.word(place)).pointer())
        with f.where(step == 0):
            number = start()
            with f.each(f.word(LANES)) as k:
                with f.where(item == 4):
                    f.b.store(number.narrow().value, copies.behind(k * 4).value)
                with f.unless(item == 4):
                    copies.at(k).put(number.word())
            start.set(copies)
        given.append(start)
        moves.append(step)
    for kind in (HALF, WORD):
        with f.where(item == kind.width // 8):
            f.call(f"choose_{kind.width}", out, places.at(row.word(FIRST)).pointer(), *[start() for start in given],
                   *moves, count)
