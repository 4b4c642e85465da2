"""Containers and objects -> their parts, and back; as merging sees them, which also opens plain objects."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.convert.choice import Choice
from tenon.capture.guards import is_atom
from tenon.tensor import Tensor

WHOLE = (Tensor, type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def parts_of(x: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
    """The labels and the parts of a container or object; None where it is one thing."""
    if is_atom(x) or type(x) is Choice or isinstance(x, WHOLE):
        return None
    if isinstance(x, dict):
        return tuple(x), list(x.values())
    if isinstance(x, (list, tuple, deque)):
        return (len(x),), list(x)
    table = getattr(x, "__dict__", None)
    if isinstance(table, dict) and not hasattr(type(x), "__next__") and not type(x).__module__.startswith("tenon."):
        return tuple(table), list(table.values())
    return None


def rebuilt(x: Any, parts: Sequence[Any]) -> Any:
    """A container or object like `x` with other parts; no code of its class runs."""
    if isinstance(x, tuple):
        make: Callable[[Sequence[Any]], Any] = getattr(type(x), "_make", tuple)
        return make(parts)
    new = copy.copy(x) if not dataclasses.is_dataclass(x) else object.__new__(type(x))
    if isinstance(new, dict):
        new.update(zip(x, parts, strict=True))
    elif isinstance(new, list):
        new[:] = parts
    elif isinstance(new, deque):
        new.clear()
        new.extend(parts)
    else:
        for name, part in zip(vars(x), parts, strict=True):
            object.__setattr__(new, name, part)
    return new


def matches(a: Any, b: Any, is_new: Callable[[Any], bool]) -> bool:
    """Whether two values are containers of one structure; nobody else may know them."""
    if type(a) is not type(b):
        return False
    left, right = parts_of(a), parts_of(b)
    if left is None or right is None or left[0] != right[0]:
        return False
    return isinstance(a, tuple) or (is_new(a) and is_new(b))
