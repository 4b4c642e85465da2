"""Where the objects of this Python and NumPy keep what machine code reads of them, found by looking.

Nothing is taken from a header file: an object is made whose field is known, and its memory is searched for it.  What is
not found where it was looked for leaves `READABLE` false, and whoever wanted to read natively goes the way of Python.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np

WORD = 8
TYPE = object.__basicsize__ - WORD              # the last word of an object's head
DATA = object.__basicsize__                     # of an ndarray: the address of its elements, behind the head
NDIM, DIMENSIONS, STRIDES, BASE, DTYPE, FLAGS = (DATA + WORD * k for k in range(1, 7))
ITEMS = tuple.__basicsize__                     # of a tuple: its items, in place
LENGTH = object.__basicsize__                   # of a list
LIST_ITEMS = LENGTH + WORD                      # of a list: where its items are
BYTES = bytes.__basicsize__ - 1                 # of bytes: its elements, in place; a zero is behind them
CELL = object.__basicsize__                     # of a closure cell: what it holds


def word_at(address: int) -> int:
    """The 8 bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


@cache
def slot_offset(cls: type, name: str) -> int:
    """Where instances of this class keep the slot of this name."""
    holder: Any = object.__new__(cls)
    value = object()
    setattr(holder, name, value)
    return field_offset(holder, value)


def field_offset(holder: Any, value: Any) -> int:
    """Where, behind its head, an object keeps its one reference to `value`; -1 where that cannot be said."""
    places = range(object.__basicsize__, type(holder).__basicsize__, WORD)
    found = [k for k in places if word_at(id(holder) + k) == id(value)]
    return found[0] if len(found) == 1 else -1


def dict_offset(holder: Any) -> int:
    """Where an object keeps its `__dict__`; 0 where that cannot be said."""
    declared = type(holder).__dictoffset__
    for offset in (declared, -3 * WORD):        # in front of the object where none is declared
        if offset and offset % WORD == 0 and offset != -1 and word_at(id(holder) + offset) == id(holder.__dict__):
            return offset
    return 0


@cache
def dict_version_offset() -> int:
    """Where a dictionary keeps a word that is new after every change of it; 0 where none is, as from Python 3.13."""
    offset, probe, holder = object.__basicsize__ + WORD, {"a": 0, "b": 0}, _SlotHolder()
    for table, changes in (
            (probe, (lambda: probe.update(a=1), lambda: probe.pop("b"), lambda: probe.update(c=1),
                     lambda: probe.__setitem__("a", 2), lambda: probe.update(d=1) or probe.pop("d"), probe.clear)),
            (vars(holder), (lambda: setattr(holder, "a", 1), lambda: delattr(holder, "a"),
                            lambda: setattr(holder, "b", 1)))):
        seen = [word_at(id(table) + offset)]
        for change in changes:
            change()
            seen.append(word_at(id(table) + offset))
        if len(set(seen)) < len(seen):
            return 0
    return offset


class _SlotHolder:
    """What keeps its attributes in a dictionary, or beside it, as in Python 3.13: changing one changes no version."""

    def __init__(self) -> None:
        self.a = 0


def _readable() -> bool:
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    if ctypes.sizeof(ctypes.c_void_p) != WORD or sys.byteorder != "little":
        return False
    array = np.zeros((2, 3, 5), np.float32)
    view, mark, items, listed = array[1], object(), (1.5, "x"), [2.5, "y"]
    cell = (lambda: mark).__closure__[0]        # type: ignore[index]
    packed = bytes(range(1, 9))
    dims, steps = word_at(id(array) + DIMENSIONS), word_at(id(array) + STRIDES)
    return (word_at(id(array) + TYPE) == id(np.ndarray) and word_at(id(array) + DATA) == array.ctypes.data
            and word_at(id(array) + NDIM) & 0xFFFFFFFF == array.ndim
            and tuple(word_at(dims + WORD * k) for k in range(3)) == array.shape
            and tuple(word_at(steps + WORD * k) for k in range(3)) == array.strides
            and word_at(id(view) + BASE) == id(array) and word_at(id(array) + BASE) == 0
            and word_at(id(array) + DTYPE) == id(array.dtype)
            and word_at(id(view) + FLAGS) & 0xFFFFFFFF == view.flags.num
            and [word_at(id(items) + ITEMS + WORD * k) for k in range(2)] == list(map(id, items))
            and word_at(id(listed) + LENGTH) == 2
            and word_at(word_at(id(listed) + LIST_ITEMS) + WORD) == id(listed[1])
            and word_at(id(cell) + CELL) == id(mark)
            and word_at(id(packed) + BYTES) == int.from_bytes(packed, "little")
            and word_at(id(mark)) & 0xFFFFFFFF == sys.getrefcount(mark) - 1)


READABLE = _readable()
