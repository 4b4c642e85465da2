"""An object -> whether another one may take its place in a capture, where guards read the same of both.

That is so where guards read all that its behaviour depends on: for objects of users' classes and of layers, functions
whose code they know, containers.  Anything else is what it is, as operators, functions of libraries, classes, modules,
objects that keep something in C: two of them may have the same attributes, or none, and do different things.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections import ChainMap, UserDict, UserList
from functools import lru_cache
from typing import Any

from tenon.capture.class_inspection import is_library
from tenon.capture.code_names import module_of
from tenon.capture.code_origin import FRONT_END, follows
from tenon.tensor import Tensor

READ_WHOLE = (list, dict, set, types.CellType, functools.partial, weakref.ref)     # these types, and not what inherits
STATELESS = ("abc", "typing", "collections.abc")    # modules whose classes keep nothing in their objects
# What keeps only attributes, or items that are read.
BARE = (object, list, dict, tuple, set, types.SimpleNamespace, UserDict, UserList, ChainMap)


def interchangeable(x: Any, guarded: bool) -> bool:
    """Whether what guards read says all about an object; `guarded` where they read anything of it at all."""
    if isinstance(x, Tensor) or type(x) in (tuple, types.MethodType):       # whose parts are compared
        return True
    if type(x) is types.FunctionType:       # its code is compared, which need not have run
        return guarded or follows(x.__code__)
    cls: Any = type(x)
    return (guarded or isinstance(x, tuple)) and (cls in READ_WHOLE or is_described(cls))


@lru_cache(maxsize=1024)
def is_described(cls: Any) -> bool:
    """Whether an object of the class is described by its attributes and items, and by the code of its methods."""
    return not issubclass(cls, type) and all(
        base in BARE or module_of(base) in STATELESS or _is_followed(base) for base in cls.__mro__)


def _is_followed(cls: type) -> bool:
    """Whether guards know the code of a class: a user's, or that of a layer or optimizer."""
    name = module_of(cls)
    if not name.startswith("tenon."):
        return not is_library(cls)
    return (getattr(sys.modules.get(name), "__file__", None) or "").startswith(FRONT_END)
