"""Objects among the arguments that are made anew for each call, such as batches and closures -> classes to open.

An object of such a class is a container of its attributes, as one of a dataclass is: tensors and numbers in it are
inputs, and what is set in it is set in the object of the call.
"""

from __future__ import annotations

import types
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Any

from tenon.capture.callable_parts import is_made_for_calls
from tenon.capture.code_names import module_of
from tenon.capture.interchangeable_objects import is_described
from tenon.capture.pytree import unfold

MAX_PARTS = 64          # of all arguments: more, and it is an object that keeps much, such as an environment
MADE = (object, types.SimpleNamespace, dict)
WITH_ITEMS = (list, tuple, set)
HOOKS = frozenset(("__del__", "__getattribute__"))


def classes_to_open(leaves: Sequence[object], opened: Set[type]) -> Set[type]:
    """The classes of objects among the leaves, and in these, that have attributes alone; none where that is too much,
    or they contain each other."""
    found: Set[type] = frozenset()
    while more := {type(x) for x in leaves if has_attributes_alone(x)} - found:
        found |= more
        leaves = unfold(tuple(leaves), classes=found)[0]
    is_open = len(leaves) <= MAX_PARTS and not any(map(has_attributes_alone, leaves))
    return found - opened if is_open else frozenset()


def has_attributes_alone(x: object) -> bool:
    """Whether an object has attributes, or entries, alone, and another can be made without the constructor."""
    cls: Any = type(x)
    if isinstance(x, (types.FunctionType, types.CellType)):
        return type(x) is types.CellType or is_made_for_calls(x)
    return _has_attributes_alone(cls)


def is_made_of_attributes(x: object) -> bool:
    """Whether an object has attributes alone, and is none of Python's own, nor a mapping or a function."""
    cls: Any = type(x)
    return cls is not object and not isinstance(x, (dict, types.FunctionType, types.CellType)) \
        and _has_attributes_alone(cls)


@lru_cache(maxsize=1024)
def _has_attributes_alone(cls: Any) -> bool:
    bases = [base for base in cls.__mro__ if base not in MADE]
    return is_described(cls) and cls.__new__ in [base.__new__ for base in MADE] and not issubclass(cls, WITH_ITEMS) \
        and not any(module_of(base).startswith("tenon.") or not HOOKS.isdisjoint(vars(base)) for base in bases)
