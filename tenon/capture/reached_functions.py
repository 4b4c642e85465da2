"""Functions, and what has one -> what their code can read: globals, cells, defaults, caches."""

from __future__ import annotations

import importlib.util
import operator
import sys
import types
from collections import deque
from functools import partial
from typing import Any

from tenon.capture.class_inspection import StandsFor, is_library
from tenon.capture.code_names import module_of, names_of
from tenon.capture.code_origin import follows
from tenon.capture.guard_readers import BUILTINS, FUNCTION, PARTIAL, cell_contents, defaults_with_lists, kept_by, misses
from tenon.capture.reached_values import ReachedValues
from tenon.errors import PACKAGE
from tenon.tensor import Tensor

LEFT = (type, types.ModuleType, Tensor)       # which are no objects of a user's class
CONTAINERS = (list, tuple, dict, set, frozenset, deque)


def is_users_object(x: Any) -> bool:
    """Whether an object is of a class that a user wrote."""
    return not isinstance(x, LEFT) and not is_library(type(x)) and not module_of(type(x)).startswith("tenon.")


class ReachedFunctions(ReachedValues):
    """What functions lead to."""

    def _add_function(self, function: types.FunctionType, path: str) -> None:
        if not self._runs(function.__code__):
            # A library's wrapper, such as tn.grad(f), of the user's function; attributes that code may read.
            wanted = {"__wrapped__", *(n for n in self._wanted(vars(function)) if not n.startswith("__"))}
            self._entries(vars(function), [n for n in vars(function) if n in wanted], path)
            self._add_cells_of_library(function, path)
            if "__closure__" in self._own_names:
                for cell in function.__closure__ or ():
                    self._add_cell(cell, path)
            self.passed.append(function.__code__)
            return
        self._hold(function)
        self._hold(function.__globals__)
        named = defaults_with_lists(function)
        for name, default in named:
            self.add(default, f"{path}.<{name}>")
        self._items(FUNCTION, function, FUNCTION(function), path, [".__code__", ".__defaults__", ".__kwdefaults__"],
                    follow=not named)
        self._add_described(function, path)
        if named:
            self.add(function.__kwdefaults__, f"{path}.__kwdefaults__")
        table, names = function.__globals__, self._global_names(function.__code__)
        self._entries(table, sorted(n for n in names if n in table), "")
        self._add_assigned(table, table, "")
        self._add_builtins(BUILTINS(function), {n for n in names if n not in table})
        self._lacks(table, frozenset(n for n in names if n not in table), "globals")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.cells.append(cell)
            self._items(cell_contents, cell, cell_contents(cell), f"{path}.<{name}>")
        own = [n for n in self._wanted(vars(function)) if not n.startswith("__")]
        self._entries(vars(function), own, path)
        self._lacks(vars(function), frozenset(self._names or ()) - frozenset(vars(function)), path)
        for name, level in names_of(function.__code__).imports:
            full = importlib.util.resolve_name("." * level + name, table.get("__package__")) if level else name
            if full in sys.modules:
                self._entries(sys.modules, [full], "sys.modules", follow=False)
                self.add(sys.modules[full], full)

    def _add_builtins(self, table: dict[str, Any], names: set[str]) -> None:
        """What names mean that no module's globals have."""
        known = self._builtins.setdefault(id(table), set())
        self._entries(table, sorted(n for n in names - known if n in table), "")
        self._lacks(table, frozenset(n for n in names - known if n not in table), "builtins")
        known |= names

    def _add_cells_of_library(self, function: types.FunctionType, path: str) -> None:
        """What a function made by a library keeps for its user, as `functools.singledispatch` does, and decorators that
        are context managers."""
        if function.__code__.co_filename.startswith(PACKAGE) or self._runs(function.__code__):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            (content,) = cell_contents(cell)
            if type(content) in CONTAINERS or isinstance(content, types.FunctionType) or is_users_object(content):
                self._items(cell_contents, cell, (content,), f"{path}.<{name}>")

    def _add_cell(self, cell: types.CellType, path: str) -> None:
        """What a closure keeps, which is read without a call of it."""
        self.cells.append(cell)
        self._items(cell_contents, cell, cell_contents(cell), f"a cell of {path}")

    def _global_names(self, code: types.CodeType) -> set[str]:
        found = set(names_of(code).global_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                found |= self._global_names(constant)
        return found

    def _add_method(self, method: types.MethodType, path: str) -> None:
        self.add(method.__self__, path + ".__self__")
        self.add(method.__func__, path)

    def _add_partial(self, bound: partial[Any], path: str) -> None:
        self._items(PARTIAL, bound, PARTIAL(bound), path, [".func", ".args", ".keywords"])

    def _add_stand_in(self, value: StandsFor, path: str) -> None:
        """A jitted function: the function, and what users gave it for attributes."""
        table = vars(value)
        self._hold(value)
        self._entries(table, ["function", *(n for n in self._wanted(table) if n not in value.own)], path)
        self._lacks(table, self._own_names - frozenset(table), path)

    def _add_cached(self, function: Any, path: str) -> None:
        """`functools.lru_cache`: what it remembers is good until it is cleared, and may be changed.

        Tenon's own caches keep what any process would compute, and grow with whatever else this one does.
        """
        self.add(function.__wrapped__, path)
        code = getattr(function.__wrapped__, "__code__", None)
        if code is not None and code.co_filename.startswith(PACKAGE):
            return
        self._items(misses, function, misses(function), path)
        if code is not None and follows(code):
            self.caches.append(function)
            for value in kept_by(function):
                self.add(value, f"a result of {path}")

    def _add_getter(self, getter: Any, path: str) -> None:
        """`operator.attrgetter` and `methodcaller`, which hold names."""
        names = [x for x in getter.__reduce__()[1] if isinstance(x, str)]
        self.named = self.named.union(part for name in names for part in name.split("."))
        if isinstance(getter, operator.methodcaller):
            for value in getter.__reduce__()[1]:
                self.add(value, path)

    def passed_by(self) -> set[types.CodeType]:
        """The users' code that was found and was not among the code that runs, with the code within it."""
        found: set[types.CodeType] = set()
        pending = [code for code in self.passed if follows(code)]
        while pending:
            if (code := pending.pop()) not in found:
                found.add(code)
                pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        return found - (self.codes or set())
