"""Containers and objects -> their parts, and back; as merging sees them, which also opens plain objects."""

from __future__ import annotations

import copy
import types
from collections import deque
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from tenon.capture.code_names import module_of
from tenon.capture.convert.tensor_list import FirstRows, TensorList, same_form
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.effects import MISSING
from tenon.capture.guards import is_atom, same_atom
from tenon.capture.output_effects import Text, closed, is_given, skeleton
from tenon.capture.output_effects import rebuilt as rebuilt_form
from tenon.capture.pytree import table_type
from tenon.records import is_dataclass
from tenon.tensor import Tensor

CONTAINERS = (dict, list, tuple, deque)
WHOLE = (Tensor, type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def parts_of(x: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
    """The labels and the parts of a container or object; None where it is one thing."""
    if is_atom(x) or type(x) is UnionValue or isinstance(x, WHOLE) or x is MISSING:
        return None
    if type(x) is TensorList:
        return (len(x.rows),), [*x.rows, x.count]
    if type(x) is FirstRows:
        return (x.rows.dtype, x.rows.shape), [x.rows, x.count]
    if type(x) is Text:
        given: list[Any] = []
        return (skeleton(closed(x, given)),), given
    if isinstance(x, CONTAINERS):
        return None if getattr(x, "__dict__", None) else _items_of(x)
    table = getattr(x, "__dict__", None)
    if isinstance(table, dict) and not hasattr(type(x), "__next__") and not module_of(type(x)).startswith("tenon."):
        return tuple(table), list(table.values())
    return None


def _items_of(x: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """The labels and the parts of a container, whatever its class makes of them."""
    if isinstance(x, dict):
        table = table_type(type(x))
        return tuple(table.keys(x)), list(table.values(x))
    kind = next(kind for kind in CONTAINERS if isinstance(x, kind))
    return (kind.__len__(x),), list(kind.__iter__(x))


def rebuilt(x: Any, parts: Sequence[Any]) -> Any:
    """A container or object like `x` with other parts; no code of its class runs."""
    if type(x) is TensorList:
        return TensorList(x.form, parts[:-1], parts[-1])
    if type(x) is FirstRows:
        return FirstRows(*parts)
    if type(x) is Text:
        return filled_with(x, parts)
    if isinstance(x, tuple):
        return tuple.__new__(type(x), parts)
    new = copy.copy(x) if not is_dataclass(x) else object.__new__(type(x))
    if isinstance(new, dict):
        for key, part in zip(table_type(type(x)).keys(x), parts, strict=True):
            dict.__setitem__(new, key, part)
    elif isinstance(new, list):
        list.__setitem__(new, slice(None), parts)
    elif isinstance(new, deque):
        new.clear()
        new.extend(parts)
    else:
        for name, part in zip(vars(x), parts, strict=True):
            object.__setattr__(new, name, part)
    return new


def filled_with(text: Text, values: Sequence[Any]) -> Text:
    """The same text of other values."""
    given = iter(values)
    found: Text = rebuilt_form(text, lambda x: next(given) if is_given(x) else x)
    return found


def matches(a: Any, b: Any, is_new: Callable[[Any], bool]) -> bool:
    """Whether two values are containers of one structure; nobody else may know them."""
    if type(a) is not type(b):
        return False
    left, right = parts_of(a), parts_of(b)
    if left is None or right is None or left[0] != right[0]:
        return False
    if type(a) is TensorList:
        return same_form(a.form, b.form)
    return isinstance(a, (tuple, FirstRows)) or type(a) is Text or (is_new(a) and is_new(b))


def are_lists(a: Any, b: Any, is_new: Callable[[Any], bool]) -> bool:
    """Whether two values are lists, or queues, that nobody else knows: they may become one of another length."""
    if type(a) is not type(b) or type(a) not in (list, deque) or not (is_new(a) and is_new(b)):
        return False
    return type(a) is list or a.maxlen == b.maxlen is None


def side_by_side(a: Sequence[Any], b: Sequence[Any]) -> list[tuple[Any, Any]]:
    """What stands in the same places of two lists, with MISSING beside what only one of them has.

    Each list keeps its order, so any way to lay them beside each other is right; what they have in common at their
    beginnings and ends is laid together.
    """
    front = _common(a, b)
    back = _common(a[front:][::-1], b[front:][::-1])
    left, right = a[front:len(a) - back], b[front:len(b) - back]
    rows = [[k for k, x in enumerate(part) if type(x) is TensorList] for part in (left, right)]
    middle = [*((x, MISSING) for x in left), *((MISSING, y) for y in right)] if rows[0] != rows[1] else \
        zip_longest(left, right, fillvalue=MISSING)
    return [*zip(a[:front], b[:front], strict=True), *middle,
            *zip(a[len(a) - back:], b[len(b) - back:], strict=True)]


def _common(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How many elements two lists have in common at their beginnings."""
    same = (x is y or same_atom(x, y) for x, y in zip(a, b, strict=False))
    return next((k for k, found in enumerate(same) if not found), min(len(a), len(b)))
