"""Values -> the mutable things that can be reached from them: what code that holds them may change."""

from __future__ import annotations

import array
import functools
import types
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from tenon.capture.class_inspection import functions_of, is_library
from tenon.capture.code_names import module_of
from tenon.capture.convert.tensor_list import FirstRows, TensorList
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.effects import slots_of
from tenon.capture.guards import is_atom
from tenon.records import dataclass, field
from tenon.tensor import Tensor


class OfCapture:
    """Base of what belongs to a capture, not to the program: no state of the user's."""


OPAQUE = (OfCapture, Tensor, types.ModuleType, types.CodeType, types.FrameType)
BYTES = (np.ndarray, bytearray, array.array)


@dataclass
class Reached:
    """Containers and objects, closure cells, iterators, and memory."""

    holders: list[Any] = field(default_factory=list)
    cells: list[types.CellType] = field(default_factory=list)
    iterators: list[Any] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)
    tensors: dict[int, Tensor] = field(default_factory=dict)


def reachable(values: Iterable[Any], known: Collection[int]) -> Reached:
    """What is reached from the values, but for what is known by its identity."""
    found, seen, pending = Reached(), set(known), list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            found.tensors[id(value)] = value
        if is_atom(value) or isinstance(value, OPAQUE) or id(value) in seen:
            continue
        seen.add(id(value))
        pending += [x for _, x in value.options] if type(value) is UnionValue else _inside(value, found)
    return found


def _inside(value: Any, found: Reached) -> list[Any]:
    """What a value holds; notes the value itself."""
    if type(value) in (TensorList, FirstRows):
        return [value.rows]
    if isinstance(value, BYTES):
        found.memory.append(value)
        return []
    if isinstance(value, type):
        if is_library(value) or module_of(value).startswith("tenon."):
            return []
        found.holders.append(value)
        return [*(f for member in vars(value).values() for f in functions_of(member) or [member]), *value.__bases__]
    if isinstance(value, types.FunctionType):
        found.cells += value.__closure__ or ()
        found.holders.append(value)
        return [*map(contents, value.__closure__ or ()), *vars(value).values(), value.__defaults__]
    if isinstance(value, types.BuiltinFunctionType):
        return [value.__self__]         # a module, or what it is a method of
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if hasattr(type(value), "__next__"):
        found.iterators.append(value)
        frame = getattr(value, "gi_frame", None)
        return list(frame.f_locals.values()) if frame is not None else []
    inside: list[Any] = []
    if isinstance(value, dict):
        inside += value.values()
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        inside += value
    table = getattr(value, "__dict__", None)
    if isinstance(table, dict):
        inside += table.values()
    inside += slots_of(value).values()
    inside.append(type(value))
    if not isinstance(value, (tuple, frozenset)) or table:
        found.holders.append(value)
    return inside


def contents(cell: types.CellType) -> Any:
    """What a closure cell holds; None where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
