"""NumPy's ufuncs -> the address of the loop that one runs for elements of given types, found by looking.

    address, data = inner_loop(np.add, "fff")

What NumPy does around its loop takes six times as long as the loop for ten numbers.  The loop is `void f(char **arrays,
intptr *count, intptr *strides, void *data)`.  It says nothing of overflows, and must be given what NumPy would give it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from tenon.cpython.object_layout import DATA, READABLE, WORD, word_at

FUNCTIONS, LOOP_DATA, COUNT, NAME, TYPES = (DATA + WORD * k for k in (2, 3, 4, 5, 6))       # of a ufunc
VERSION, NEW_FROM_DESCR = 0, 94         # places in the table of functions that NumPy has for other libraries
MAJOR = 0x2000000                       # the version of that table since NumPy 2
MATRICES = "(n?,k),(k,m?)->(n?,m?)"      # what `matmul` takes and gives
PROBES = 37                             # numbers on which a loop is compared with its ufunc


@cache
def inner_loop(ufunc: np.ufunc, kinds: str) -> tuple[int, int] | None:
    """The loop for these types, a character for each input and output, and its data; None where none is found."""
    at = id(ufunc)
    wanted = f"{kinds[:ufunc.nin]}->{kinds[ufunc.nin:]}"
    if not READABLE or wanted not in ufunc.types or not _is_as_supposed(ufunc):
        return None
    place = ufunc.types.index(wanted)
    loop, data = (word_at(word_at(at + table) + WORD * place) for table in (FUNCTIONS, LOOP_DATA))
    does = _multiplies if ufunc.signature == MATRICES else _does_the_same if ufunc.signature is None else None
    return (loop, data) if loop and does is not None and does(ufunc, kinds, loop, data) else None


def _is_as_supposed(ufunc: np.ufunc) -> bool:
    """Whether what is known of a ufunc stands where it should."""
    at = id(ufunc)
    if word_at(at + DATA) != ufunc.nin | ufunc.nout << 32 or word_at(at + DATA + WORD) & 0xFFFFFFFF != ufunc.nargs:
        return False
    if word_at(at + COUNT) & 0xFFFFFFFF != ufunc.ntypes:
        return False
    numbers = bytes(np.dtype(x).num for text in ufunc.types for x in text.replace("->", ""))
    named: bool = ctypes.string_at(word_at(at + NAME)) == ufunc.__name__.encode()
    return named and ctypes.string_at(word_at(at + TYPES), len(numbers)) == numbers


def _does_the_same(ufunc: np.ufunc, kinds: str, loop: int, data: int) -> bool:
    """Whether the loop gives the bits that the ufunc gives."""
    inputs = [_probes(kind, k) for k, kind in enumerate(kinds[:ufunc.nin])]
    with np.errstate(all="ignore"):
        expected = ufunc(*inputs)
    found = np.zeros_like(expected)
    if found.dtype.char != kinds[-1]:
        return False
    _run(loop, data, [*inputs, found], [PROBES], [x.itemsize for x in (*inputs, found)])
    return bool(found.tobytes() == expected.tobytes())


def loop_beside(ufunc: np.ufunc, address: int, data: int, given: Iterable[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Whether a loop gives the bits that the ufunc gives of these arrays and numbers, in both orders."""
    for x, number in given:
        for inputs in ((x, number), (number, x)):
            with np.errstate(all="ignore"):
                expected = ufunc(*inputs)
            found = np.zeros_like(expected)
            _run(address, data, [*inputs, found], [x.size], [*[y.itemsize * y.ndim for y in inputs], found.itemsize])
            if found.tobytes() != expected.tobytes():
                return False
    return True


def _multiplies(ufunc: np.ufunc, kinds: str, loop: int, data: int) -> bool:
    """The same of `matmul`, whose loop takes the sizes of the matrices too, and the strides of their axes."""
    a, b = np.arange(6.0).reshape(2, 3).astype(kinds[0]), np.arange(15.0).reshape(3, 5).astype(kinds[1])
    expected = ufunc(a, b)
    found = np.zeros_like(expected)
    _run(loop, data, [a, b, found], [1, 2, 3, 5], [0, 0, 0, *a.strides, *b.strides, *found.strides])
    return bool(found.tobytes() == expected.tobytes())


def _run(loop: int, data: int, arrays: list[np.ndarray], sizes: list[int], strides: list[int]) -> None:
    given = [_words(x) for x in ([x.ctypes.data for x in arrays], sizes, strides)]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(loop)(*given, data)


def _probes(kind: str, k: int) -> np.ndarray:
    special = [0.0, -0.0, 1.0, -1.0, 1e-310, np.inf, -np.inf, 3e38][::1 - 2 * k]
    with np.errstate(all="ignore"):
        return np.concatenate([special, np.linspace(-3 + k, 3.5, PROBES - len(special))]).astype(kind)


def _words(values: list[int]) -> Any:
    return (ctypes.c_uint64 * len(values))(*values)


@cache
def new_array() -> int:
    """The address of what makes an array of a type, which it takes over, and sizes; 0 where that is not known.

    `PyArray_NewFromDescr`, as `numpy/arrayobject.h` declares it.
    """
    capsule = getattr(import_module("numpy._core.multiarray"), "_ARRAY_API", None)
    if capsule is None:
        return 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer(capsule, None)
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(word_at(table + WORD * VERSION))()
    return word_at(table + WORD * NEW_FROM_DESCR) if version >> 24 == MAJOR >> 24 else 0
