"""Containers that a program replaces from call to call -> their parts, which are read anew; they are compared by form.

Tuples, lists, dictionaries with names for keys, and objects of attributes alone: what a step leaves as its state, or
its metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.capture.class_inspection import has_own
from tenon.capture.code_names import module_of
from tenon.capture.effects import slots_of
from tenon.capture.guards import is_atom
from tenon.capture.opened_objects import is_made_of_attributes
from tenon.records import dataclass, is_dataclass
from tenon.tensor import Tensor

MAX_PARTS = 64


@dataclass(frozen=True, eq=False)
class ContainerForm:
    """What all containers that stand in a place have in common: their class, and their keys, or how many items."""

    kind: type
    keys: tuple[Any, ...]

    @property
    def has_attributes(self) -> bool:
        """Whether its parts are attributes."""
        return not issubclass(self.kind, (tuple, list, dict))


def part_keys(value: Any) -> tuple[Any, ...] | None:
    """The keys, places or attributes under which a container has its parts; None for anything else."""
    kind = type(value)
    if kind is list or isinstance(value, tuple):
        named = hasattr(kind, "_fields") and kind.__bases__ == (tuple,)
        return tuple(range(len(value))) if named or kind in (list, tuple) else None
    if kind is dict:
        return tuple(value) if all(type(key) is str for key in value) else None
    plain = is_made_of_attributes(value) or (is_dataclass(kind) and getattr(kind, "__new__", None) is object.__new__)
    return tuple(vars(value)) if plain and not slots_of(value) and not module_of(kind).startswith("tenon.") else None


def part_at(value: Any, key: Any) -> Any:
    """A part of a container."""
    return value[key] if isinstance(value, (tuple, list, dict)) else vars(value)[key]


def rebuilt(value: Any, parts: Sequence[Any]) -> Any:
    """A container like this one, of other parts."""
    kind = type(value)
    if isinstance(value, tuple):
        return tuple(parts) if kind is tuple else kind(*parts)
    if kind is list:
        return list(parts)
    if kind is dict:
        return dict(zip(value, parts, strict=True))
    new = object.__new__(kind)
    vars(new).update(zip(vars(value), parts, strict=True))
    return new


def is_movable(value: Any, depth: int = 0) -> bool:
    """Whether a container holds tensors and plain values alone, and so is what its parts are."""
    keys = part_keys(value)
    return keys is not None and depth < 4 and len(keys) <= MAX_PARTS and all(
        is_atom(x) or (isinstance(x, Tensor) and not has_own(x)) or is_movable(x, depth + 1)
        for x in (part_at(value, key) for key in keys))


def is_of_one_form(value: Any, other: Any) -> bool:
    """Whether two containers have parts of the same types under the same keys."""
    if type(value) is not type(other):
        return False
    keys = part_keys(value)
    return keys is None or (keys == part_keys(other) and all(
        is_of_one_form(part_at(value, key), part_at(other, key)) for key in keys))

