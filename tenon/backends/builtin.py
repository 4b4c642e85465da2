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

POSITIONAL = 0x80       # METH_FASTCALL


class _Method(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def builtin(name: str, address: int, owner: Any, kept: Any = None) -> Callable[..., Any]:
    """The code at this address as a function, which keeps `owner` and what is `kept` for it."""
    function: Callable[..., Any] = _make()(ctypes.addressof(_method(name, address)), owner, kept)
    return function


@cache
def _method(name: str, address: int) -> _Method:
    """What the function refers to for as long as it lives."""
    return _Method(name.encode(), address, POSITIONAL, None)


@cache
def _make() -> Any:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return make
