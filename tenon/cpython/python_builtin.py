"""Machine code -> a Python builtin function: called like `len`, in some 20 ns, where ctypes takes 150 and more.

    holds = builtin("holds", library.address("holds"), table)
    holds(leaves)

The code at the address is `ptr f(ptr owner, ptr arguments, i64 count)`; owner, arguments and the result are Python
objects, and the caller has the GIL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

POSITIONAL, NAMED = 0x80, 0x02      # METH_FASTCALL, METH_KEYWORDS


class _Method(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def builtin(name: str, address: int, owner: Any, kept: Any = None, doc: str | None = None,
            named: bool = False) -> Callable[..., Any]:
    """The code at this address as a function, which keeps `owner` and what is `kept` for it.

    `named`: it takes named arguments too, whose values come last; their names, or null, are its fourth argument.
    """
    flags = POSITIONAL | NAMED * named
    function: Callable[..., Any] = _make()(ctypes.addressof(_method(name, address, flags, doc)), owner, kept)
    return function


def bound(function: Callable[..., Any]) -> Any:
    """A builtin as what a class has for a method, which is given the instance first."""
    make = ctypes.pythonapi.PyInstanceMethod_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object]
    return make(function)


def method(name: str, address: int, kind: type) -> Any:
    """The code at this address as a method of a class: `ptr f(ptr self, ptr arguments, i64 count, ptr names)`, where
    the values of named arguments come last, and names may be null."""
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]
    return make(kind, ctypes.addressof(_method(name, address, POSITIONAL | NAMED, None)))


@cache
def _method(name: str, address: int, flags: int, doc: str | None) -> _Method:
    """What the function refers to for as long as it lives."""
    return _Method(name.encode(), address, flags, None if doc is None else doc.encode())


@cache
def _make() -> Any:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return make
