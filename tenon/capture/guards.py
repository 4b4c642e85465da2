"""What a captured function read from Python -> conditions that a later call checks before it reuses the capture.

`Watch` notes which code objects run during a capture.  From the function, `Reach` then walks what that code can read by
name: globals, closure cells, defaults, attributes, items of containers.  Every value found is a guard: an immutable by
equality, a tensor, function, class or object by identity, a container by its length or keys.  Attributes of library
modules are not followed.
"""

from __future__ import annotations

import dis
import enum
import io
import random
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tenon.errors import PACKAGE, location_of
from tenon.tensor import Tensor
from tenon.types import DType

ATOMS = (bool, int, float, complex, str, bytes, type(None), DType, np.dtype, np.generic, enum.Enum, range,
         type(Ellipsis))
DATA = (*ATOMS, Tensor, list, dict, tuple)
MISSING = object()
LARGEST_CONTAINER = 10_000
PRINTING = (print, input, open)
LIBRARIES = tuple({p for p in (sys.prefix + "/lib", sys.base_prefix + "/lib", PACKAGE) if p})
ELSEWHERE = (*LIBRARIES, "<string>", "<frozen")         # generated code reads nothing of its own
FRONT_END = (PACKAGE + "nn/", PACKAGE + "optim/")       # of Tenon's own code, what holds users' state


class UnsafeCall(BaseException):
    """Raised out of a capture just before a call whose effect a graph cannot repeat."""

    def __init__(self, what: str, frame: types.FrameType):
        super().__init__(what)
        self.what, self.where = what, location_of(frame)


@dataclass
class Watch:
    """The code that ran."""

    codes: set[types.CodeType] = field(default_factory=set)

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """Take note of everything this thread runs in the block; stop it before an unrepeatable call."""
        before = sys.getprofile()
        sys.setprofile(self._event)
        try:
            yield self
        finally:
            sys.setprofile(None)
            if isinstance(before, types.FunctionType | types.MethodType):
                sys.setprofile(before)
            elif before is not None:
                before.enable()  # type: ignore[attr-defined]  # cProfile's profiler, which is no function

    def _event(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if follows(frame.f_code):
                self.codes.add(frame.f_code)
        elif event == "c_call" and follows(frame.f_code) and is_unrepeatable(arg):
            raise UnsafeCall(f"{getattr(arg, '__name__', arg)}()", frame)


def is_unrepeatable(function: Any) -> bool:
    """Whether a built-in function acts on, or depends on, the world outside the program."""
    owner = getattr(function, "__self__", None)
    return function in PRINTING or getattr(function, "__module__", None) in ("time", "_random") \
        or isinstance(owner, (random.Random, np.random.Generator, np.random.RandomState, io.IOBase))


def follows(code: types.CodeType) -> bool:
    """Whether what this code reads is guarded: user code, layers and optimizers, not libraries."""
    return code.co_filename.startswith(FRONT_END) or not code.co_filename.startswith(ELSEWHERE)


@dataclass(frozen=True)
class Names:
    """The names that a set of code objects can read."""

    global_names: frozenset[str]
    attributes: frozenset[str]


@lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> Names:
    """The globals and attributes that one code object names."""
    loads: dict[str, set[str]] = {name: set() for name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD",
                                                           "LOAD_SUPER_ATTR")}
    for instruction in dis.get_instructions(code):
        if instruction.opname in loads:
            loads[instruction.opname].add(instruction.argval)
    strings = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}    # getattr(x, "name")
    return Names(frozenset(loads["LOAD_GLOBAL"] | loads["LOAD_NAME"]),
                 frozenset(loads["LOAD_ATTR"] | loads["LOAD_METHOD"] | loads["LOAD_SUPER_ATTR"] | strings))


@dataclass(frozen=True)
class Guard:
    """`read()` must still give `expected`, by identity or (for immutable values) by type and equality."""

    read: Callable[[], Any]
    expected: Any
    path: str

    def holds(self) -> bool:
        """Whether the value is what it was."""
        try:
            value = self.read()
        except Exception:
            value = MISSING
        return value is self.expected or same_atom(value, self.expected)

    def __str__(self) -> str:
        return f"{self.path} is {self.expected!r:.60}" if self.expected is not MISSING else f"{self.path} is absent"


def same_atom(value: Any, expected: Any) -> bool:
    """Equality of immutable values: same type, same value, NaN equal to itself, 0.0 apart from -0.0."""
    if type(value) is not type(expected) or not isinstance(expected, (*ATOMS, tuple, frozenset)):
        return False
    return bool(value == expected and (not isinstance(value, float) or str(value) == str(expected))) or \
        (isinstance(value, float) and value != value and expected != expected)


class Reach:
    """Everything that a set of code can read from given roots by name."""

    def __init__(self, codes: set[types.CodeType] | None):
        self.codes = codes                      # None: whatever code the roots lead to
        self.guards: list[Guard] = []
        self.holders: dict[int, Any] = {}       # mutable containers and objects found, for effects
        self.cells: list[types.CellType] = []
        self._attributes = frozenset().union(*(names_of(c).attributes for c in codes)) if codes else None
        self._visited: set[int] = set()
        self._alive: list[Any] = []

    def add_function(self, function: types.FunctionType, path: str) -> None:
        """Follow a function: its globals, closure and defaults."""
        if id(function) in self._visited:
            return
        if not self._runs(function.__code__):
            if "__wrapped__" in vars(function):     # a wrapper of a library's, as tn.grad(f), around the user's
                self._visit(function)
                self._add(partial(getattr, function, "__wrapped__"), vars(function)["__wrapped__"], path)
            return
        self._visit(function)
        for name in sorted(self._global_names(function.__code__)):
            if name in function.__globals__:
                self._add(partial(_get_item, function.__globals__, name), function.__globals__[name], name)
            else:
                self.guards.append(Guard(partial(function.__globals__.get, name, MISSING), MISSING, name))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.cells.append(cell)
            self._add(partial(_get_cell, cell), _get_cell(cell), f"{path}.<{name}>")
        for k, value in enumerate(function.__defaults__ or ()):
            self._add(partial(_default, function, k), value, f"{path}.__defaults__[{k}]")
        for name, value in (function.__kwdefaults__ or {}).items():
            self._add(partial(_keyword_default, function, name), value, f"{path}.__kwdefaults__[{name!r}]")

    def add_value(self, value: Any, path: str) -> None:
        """Follow a value that needs no guard of its own, such as an argument."""
        if isinstance(value, types.FunctionType):
            self.add_function(value, path)
        elif isinstance(value, types.MethodType):
            self.add_value(value.__self__, path + ".__self__")
            self.add_value(value.__func__, path)
        elif isinstance(value, partial):
            self.add_value(value.func, path + ".func")
            self._children(value, [(a, partial(_partial_argument, value, k), f"{path}.args[{k}]")
                                   for k, a in enumerate(value.args)])
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, types.ModuleType):
            self._add_module(value, path)
        elif isinstance(value, (list, tuple)):
            self._add_sequence(value, path)
        elif isinstance(value, dict):
            self._add_dict(value, path)
        elif isinstance(value, (set, frozenset)):
            self._visit(value)
            self.guards.append(Guard(partial(frozenset, value), frozenset(value), path))
        elif not isinstance(value, (*ATOMS, Tensor, np.ndarray)):
            self._add_object(value, path)

    def _add(self, read: Callable[[], Any], value: Any, path: str) -> None:
        if isinstance(value, property):
            return
        self.guards.append(Guard(read, value, path))
        if id(value) not in self._visited:
            self.add_value(value, path)

    def _children(self, value: Any, children: list[tuple[Any, Callable[[], Any], str]]) -> None:
        self._visit(value)
        for child, read, path in children:
            self._add(read, child, path)

    def _add_sequence(self, value: Any, path: str) -> None:
        if len(value) > LARGEST_CONTAINER:
            return
        if isinstance(value, list):
            self.guards.append(Guard(partial(len, value), len(value), f"len({path})"))
        self._children(value, [(x, partial(_get_item, value, k), f"{path}[{k}]") for k, x in enumerate(value)])

    def _add_dict(self, value: dict[Any, Any], path: str) -> None:
        if len(value) > LARGEST_CONTAINER:
            return
        self.guards.append(Guard(partial(tuple, value), tuple(value), f"keys of {path}"))
        self._children(value, [(x, partial(_get_item, value, k), f"{path}[{k!r}]") for k, x in value.items()])

    def _add_module(self, module: types.ModuleType, path: str) -> None:
        if (getattr(module, "__file__", None) or "/lib").startswith(LIBRARIES) or module.__name__ == "builtins":
            return
        self._children(module, [(module.__dict__[n], partial(_get_item, module.__dict__, n), f"{path}.{n}")
                                for n in self._attribute_names(module.__dict__)])

    def _add_class(self, cls: type) -> None:
        if id(cls) in self._visited:
            return
        self._visit(cls)
        for base in cls.__mro__:
            for name, member in list(vars(base).items()):
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(function, types.FunctionType):
                    if self._runs(function.__code__):
                        self.guards.append(Guard(partial(getattr, base, name, MISSING), getattr(base, name, MISSING),
                                                 f"{base.__name__}.{name}"))
                        self.add_function(function, f"{base.__name__}.{name}")
                elif self._wanted(name) and not name.startswith("__") and isinstance(member, DATA):
                    self._add(partial(_class_item, base, name), member, f"{base.__name__}.{name}")

    def _add_object(self, value: Any, path: str) -> None:
        cls = type(value)
        if cls.__module__ in ("builtins", "contextlib", "threading", "collections"):
            return
        self._add_class(cls)
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict):
            slots = [s for base in cls.__mro__ for s in getattr(base, "__slots__", ())
                     if self._wanted(s) and hasattr(value, s)]
            self._children(value, [(getattr(value, s), partial(getattr, value, s), f"{path}.{s}") for s in slots])
            return
        self._children(value, [(attributes[n], partial(_get_item, attributes, n), f"{path}.{n}")
                               for n in self._attribute_names(attributes)])
        for name in self._absent(value, attributes):
            self.guards.append(Guard(partial(attributes.get, name, MISSING), MISSING, f"{path}.{name}"))

    def _absent(self, value: Any, attributes: dict[str, Any]) -> list[str]:
        """Attributes that the code asks for and an object of the user's lacks (hasattr, class defaults)."""
        if self._attributes is None or type(value).__module__.startswith("tenon."):
            return []
        return [name for name in sorted(self._attributes) if name not in attributes and not name.startswith("__")
                and not _is_data_descriptor(type(value), name)]

    def _attribute_names(self, attributes: dict[str, Any]) -> list[str]:
        return [name for name in list(attributes) if self._wanted(name)]

    def _wanted(self, name: str) -> bool:
        # Layers keep parameters and sub-modules under names that only their generic code reads.
        return self._attributes is None or name in self._attributes or name.startswith("_")

    def _runs(self, code: types.CodeType) -> bool:
        return code in self.codes if self.codes is not None else follows(code)

    def _global_names(self, code: types.CodeType) -> set[str]:
        found = set(names_of(code).global_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                found |= self._global_names(constant)
        return found

    def _visit(self, value: Any) -> None:
        self._visited.add(id(value))
        self._alive.append(value)
        if isinstance(value, (list, dict, set)) or hasattr(value, "__dict__"):
            self.holders[id(value)] = value


def _is_data_descriptor(cls: type, name: str) -> bool:
    return any(hasattr(vars(base).get(name), "__set__") for base in cls.__mro__)


def _get_item(holder: Any, key: Any) -> Any:
    return holder[key]


def _get_cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _default(function: types.FunctionType, k: int) -> Any:
    return (function.__defaults__ or ())[k]


def _keyword_default(function: types.FunctionType, name: str) -> Any:
    return (function.__kwdefaults__ or {})[name]


def _partial_argument(bound: partial[Any], k: int) -> Any:
    return bound.args[k]


def _class_item(cls: type, name: str) -> Any:
    return vars(cls)[name]
