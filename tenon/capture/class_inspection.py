"""What is asked of classes: whose they are, which functions their members are, what their libraries' code reads."""

from __future__ import annotations

import functools
import sys
import types
from functools import lru_cache
from typing import Any

from tenon.capture.c_function_purity import COMPUTING
from tenon.capture.code_names import module_of, names_of
from tenon.capture.code_origin import LIBRARIES
from tenon.tensor import Tensor

OF_ITSELF = tuple(f"/{name}.py" for name in (
    "functools", "contextlib", "enum", "abc", "typing", "types", "warnings", "weakref", "collections/__init__",
    "re/__init__", "threading", "inspect"))
WRITTEN = (property, functools.cached_property)     # descriptors whose code can be read
HEAP_TYPE = 1 << 9      # of the flags of a class


class StandsFor:
    """Base of what stands for a user's `function`, and keeps things beside (`own`) that no guard may depend on."""

    function: Any
    own: frozenset[str]


def has_own(tensor: Tensor) -> bool:
    """Whether a tensor is of a user's class or has a user's attributes."""
    return not module_of(type(tensor)).startswith("tenon.") or bool(getattr(tensor, "__dict__", None))


def is_library(cls: type) -> bool:
    """Whether the class comes with Python or an installed package, and is not Tenon's."""
    name = module_of(cls)
    if name.startswith("tenon.") or name == "__main__":
        return False
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and file.startswith(LIBRARIES)


@lru_cache(maxsize=1024)
def inherited_names(cls: Any) -> frozenset[str]:
    """The attributes that code of a class's library bases reads, such as `data` of a `UserDict`."""
    bases = [b for b in cls.__mro__ if is_library(b) and module_of(b) not in ("builtins", "abc", "typing", "enum")]
    codes = [f.__code__ for base in bases for member in vars(base).values() for f in functions_of(member)]
    return frozenset().union(*(names_of(code).attributes for code in codes))


def functions_of(member: Any) -> list[types.FunctionType]:
    """The Python functions of a member of a class: a method, a property, a cached property."""
    found = [member, getattr(member, "__func__", None), getattr(member, "fget", None), getattr(member, "fset", None),
             member.func if isinstance(member, functools.cached_property) else None]
    return [f for f in found if isinstance(f, types.FunctionType)]


@lru_cache(maxsize=1024)
def hidden_attributes(cls: Any) -> frozenset[str]:
    """The attributes that code in C keeps where no guard can look, and that may be another value at every look."""
    found: set[str] = set()
    for base in cls.__mro__:
        module = module_of(base)
        if module in COMPUTING or module.startswith(("numpy", "tenon.")) or module == "_thread":
            continue
        slots = vars(base).get("__slots__", ())
        own = {slots} if isinstance(slots, str) else {*slots, "__dict__", "__weakref__"}
        found.update(n for n, member in vars(base).items() if n not in own and hasattr(type(member), "__set__")
                     and module_of(type(member)) in ("builtins", "_ctypes") and type(member) not in WRITTEN)
    return frozenset(found)


@lru_cache(maxsize=1024)
def is_fixed(cls: type) -> bool:
    """Whether nobody can give the class another attribute, as those written in C."""
    return not cls.__flags__ & HEAP_TYPE


def looks_at_its_own(code: types.CodeType) -> bool:
    """Whether code of Python's library makes up names of what it made itself, or of functions."""
    return code.co_filename.endswith(OF_ITSELF) or "/numpy/" in code.co_filename
