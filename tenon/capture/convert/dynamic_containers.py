"""What expressions mean for containers that hold as many elements as the data decide, and for one of several."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenon.capture.convert import builtins_in_python
from tenon.capture.convert.callees import callee
from tenon.capture.convert.container_methods import holds_undecided, keys, lookup, refill, store
from tenon.capture.convert.dynamic_indexing import cut, found_at, length, stored, taken
from tenon.capture.convert.optional_elements import (
    SEQUENCES,
    compared,
    is_undecided,
    presence,
    present,
    refused,
    select,
)
from tenon.capture.convert.reachable import OfCapture
from tenon.capture.convert.tensor_list import TensorList
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.effects import MISSING
from tenon.dims.undecided_sizes import for_user

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture


def view_of(capture: ConvertingCapture, held: Any) -> Any:
    """The container itself, or what stands for it where Python does not know what is in it."""
    if type(held) is UnionValue and type(held := capture.settled(held)) is UnionValue:
        return ItemView(capture, held)
    return ItemView(capture, held) if capture.undecided and is_undecided(held) else held


class ItemView(OfCapture):
    """`container[...]`, to be read, stored and deleted."""

    __slots__ = ("capture", "held")

    def __init__(self, capture: ConvertingCapture, held: Any):
        self.capture, self.held = capture, held

    def __getitem__(self, key: Any) -> Any:
        capture, held = self.capture, self.held
        if type(held) is UnionValue:
            return capture.each(held, lambda x: view_of(capture, x)[key])
        if isinstance(held, dict):
            return lookup(capture, held, key)
        if isinstance(key, slice):
            return type(held)(cut(capture, held, key))
        return found_at(capture, held, self.place(key), type(held).__name__)[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        capture, held = self.capture, self.held
        if type(held) is UnionValue:
            capture.each(held, lambda x: view_of(capture, x).__setitem__(key, value))
        elif isinstance(held, dict):
            store(capture, held, key, value)
        elif isinstance(held, tuple):
            held[key] = value       # type: ignore[index]
        else:
            refill(held, stored(capture, list(held), self.place(key), value, "list assignment"))

    def __delitem__(self, key: Any) -> None:
        capture, held = self.capture, self.held
        if type(held) is UnionValue:
            capture.each(held, lambda x: view_of(capture, x).__delitem__(key))
        elif isinstance(held, dict):
            lookup(capture, held, key)
            del held[key]
        elif isinstance(held, tuple):
            del held[key]           # type: ignore[attr-defined]
        else:
            refill(held, taken(capture, list(held), self.place(key), "list assignment")[1])

    @staticmethod
    def place(key: Any) -> int:
        """An index that is known."""
        if type(key) is not int:
            raise refused("an element is looked up in a list")
        return key


def content(capture: ConvertingCapture, value: Any) -> Any:
    """The elements of a container, or of one of several; some may be there or not."""
    if type(value) is UnionValue and type(value := capture.settled(value)) is UnionValue:
        return capture.each(value, lambda x: list(content(capture, x)))
    return keys(capture, value) if isinstance(value, dict) and is_undecided(value) else value


def counted(capture: ConvertingCapture, value: Any) -> Any:
    """A container of a known number of elements."""
    if type(value) is UnionValue or not isinstance(value, dict):
        value = content(capture, value)
    if is_undecided(value):
        raise refused("a container is used where Python counts its elements")
    return value


def unpacked(capture: ConvertingCapture, value: Any, pattern: Sequence[Any]) -> Any:
    """What Python can unpack by itself: as many elements as there are variables before and behind the star."""
    value = content(capture, value)
    if is_undecided(value):
        value = _exactly(capture, value, pattern) if "*" not in pattern else _around(capture, value, pattern)
    if any(isinstance(p, tuple) for p in pattern) and isinstance(value, (*SEQUENCES, UnionValue)):
        value = list(value)
        for k, p in enumerate(pattern if "*" not in pattern else ()):
            if isinstance(p, tuple) and k < len(value):
                value[k] = unpacked(capture, value[k], p)
    return value


def _exactly(capture: ConvertingCapture, value: Any, pattern: Sequence[Any]) -> list[Any]:
    if isinstance(value, dict):
        raise refused("a dictionary is unpacked")
    n = len(pattern)
    if not any(type(x) is TensorList for x in value) and len(value) < n:
        raise ValueError(f"not enough values to unpack (expected {n}, got {len(value)})")
    capture.fail_if_not(compared(length(capture, value), lambda m: m == n))
    return [found_at(capture, value, k)[0] for k in range(n)]


def _around(capture: ConvertingCapture, value: Any, pattern: Sequence[Any]) -> list[Any]:
    star = pattern.index("*")
    before, behind = star, len(pattern) - star - 1
    capture.fail_if_not(compared(length(capture, value), lambda m: m >= before + behind))
    first = [found_at(capture, value, k)[0] for k in range(before)]
    last = [found_at(capture, value, -k)[0] for k in range(behind, 0, -1)]
    return [*first, *cut(capture, value, slice(before, -behind or None)), *last]


def attribute(capture: ConvertingCapture, holder: Any, name: str, found: Any) -> Any:
    """An attribute that an object has or not: else it is that of its class, or there is none."""
    there, value = presence(capture, found), present(capture, found)
    inherited = inspect.getattr_static(type(holder), name, MISSING)
    if inherited is MISSING and not hasattr(type(holder), "__getattr__"):
        capture.fail_if_not(there)
        return value
    if inherited is MISSING or hasattr(type(inherited), "__get__"):
        raise refused(f"the attribute {name} of an object")
    return select(capture, there, value, inherited)


def has_attribute(capture: ConvertingCapture, holder: Any, name: str, found: Any) -> Any:
    """Whether there is such an attribute."""
    if inspect.getattr_static(type(holder), name, MISSING) is not MISSING:
        return True
    if hasattr(type(holder), "__getattr__"):
        raise refused(f"the attribute {name} of an object")
    return presence(capture, found)


@for_user
def contained(capture: ConvertingCapture, wanted: Any, container: Any) -> Any:
    """`wanted in container`."""
    if type(container) is UnionValue and type(container := capture.settled(container)) is UnionValue:
        return capture.each(container, lambda x: contained(capture, wanted, x))
    if type(wanted) is UnionValue:
        return capture.each_option(wanted, lambda x: contained(capture, x, container))
    if not is_undecided(container):
        return wanted in container
    if isinstance(container, dict):
        return wanted in container and presence(capture, container[wanted])
    return callee(builtins_in_python.contains)(container, wanted)


def is_counted(*values: Any) -> bool:
    """Whether a comparison would count elements that are there or not."""
    return any(type(x) is not UnionValue and holds_undecided(x) for x in values)


def containers_equal(capture: ConvertingCapture, left: Any, right: Any) -> Any:
    """`left == right` of two such containers."""
    if type(left) is UnionValue or type(right) is UnionValue or isinstance(left, dict) or isinstance(right, dict):
        raise refused("a container is compared with another")
    if type(left) is not type(right):
        return False
    return callee(builtins_in_python.equal)(left, right)
