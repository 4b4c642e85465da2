"""Callables among the arguments -> their parts, and back: bound methods, partial functions, functions that are made
for each call, whose cells and defaults hold what changes."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from tenon.capture.effects import MISSING, contents
from tenon.records import dataclass

CALLABLES = (types.MethodType, functools.partial, types.FunctionType, types.CellType)
BOUND = frozenset(CALLABLES[:2])        # a function, and what it is given
Parts = tuple[tuple[Any, ...], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class FunctionDefinition:
    """What the functions of one `def` or `lambda` have in common; there is one of each."""

    code: types.CodeType
    scope: dict[str, Any]               # what its globals are
    annotations: Mapping[str, Any]

    def function(self, labels: Sequence[Any], parts: Sequence[Any]) -> types.FunctionType:
        """A function with these cells, defaults, and defaults of parameters that have to be named."""
        cells = len(self.code.co_freevars)
        defaults = sum(type(label) is int for label in labels)
        made = types.FunctionType(self.code, self.scope, None, tuple(parts[cells:cells + defaults]) or None,
                                  tuple(parts[:cells]) or None)
        made.__kwdefaults__ = dict(zip(labels[cells + defaults:], parts[cells + defaults:], strict=True)) or None
        made.__annotations__ = dict(self.annotations)
        return made


_definitions: WeakValueDictionary[Any, FunctionDefinition] = WeakValueDictionary()


def is_made_for_calls(x: Any) -> bool:
    """Whether a function is a user's that no module has under its name, so few programs ask which one it is."""
    return type(x) is types.FunctionType and "<" in x.__qualname__ and not (x.__module__ or "").startswith("tenon.")


def definition_of(function: types.FunctionType) -> FunctionDefinition | None:
    """What it has in common with others; None where it has attributes, or cannot be made again."""
    found = tuple(function.__annotations__.items())
    is_whole = all(contents(cell) is not MISSING for cell in function.__closure__ or ())
    if function.__dict__ or not is_whole or not all(isinstance(x, (str, type)) for _, x in found):
        return None
    key = function.__code__, id(function.__globals__), found
    return _definitions.setdefault(key, FunctionDefinition(function.__code__, function.__globals__, dict(found)))


def callable_parts(x: Any) -> Parts | None:
    """The labels of the parts, and these; None where there is more to it."""
    if isinstance(x, types.MethodType):
        return ("__self__", "__func__"), (x.__self__, x.__func__)
    if isinstance(x, types.CellType):
        return None if contents(x) is MISSING else (("cell_contents",), (x.cell_contents,))
    if isinstance(x, functools.partial):
        labels = "func", *range(len(x.args)), *x.keywords
        return None if x.__dict__ else (labels, (x.func, *x.args, *x.keywords.values()))
    if not is_made_for_calls(x) or definition_of(x) is None:
        return None
    defaults, named = x.__defaults__ or (), x.__kwdefaults__ or {}
    labels = *x.__code__.co_freevars, *range(len(defaults)), *named
    return labels, (*(x.__closure__ or ()), *defaults, *named.values())


def callable_of(kind: type, labels: Sequence[Any], definition: FunctionDefinition | None, parts: Sequence[Any]) -> Any:
    """The callable with these parts."""
    if kind is types.MethodType:
        return types.MethodType(parts[1], parts[0])
    if kind is types.CellType:
        return types.CellType(parts[0])
    if definition is not None:
        return definition.function(labels, parts)
    count = sum(type(label) is int for label in labels) + 1
    return functools.partial(parts[0], *parts[1:count], **dict(zip(labels[count:], parts[count:], strict=True)))
