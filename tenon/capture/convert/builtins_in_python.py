"""Functions of Python, written in Python: as users' code they are rewritten where they go through what data decide."""

# ruff: noqa: SIM110    the loops are what is rewritten

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def total(items: Iterable[Any], start: Any) -> Any:
    """`sum(items, start)`."""
    for item in items:
        start = start + item
    return start


def mapped(items: Iterable[Any], make: Callable[[Any], list[Any]]) -> list[Any]:
    """What `make` gives for each of the items, one behind the other."""
    found: list[Any] = []
    for item in items:
        found.extend(make(item))
    return found


def contains(items: Iterable[Any], wanted: Any) -> bool:
    """`wanted in items`."""
    for item in items:
        if item is wanted or item == wanted:
            return True
    return False


def index_of(items: Iterable[Any], wanted: Any) -> int:
    """`items.index(wanted)`."""
    for place, item in enumerate(items):
        if item is wanted or item == wanted:
            return place
    raise ValueError("it is not in the list")


def count_of(items: Iterable[Any], wanted: Any) -> int:
    """`items.count(wanted)`."""
    found = 0
    for item in items:
        if item is wanted or item == wanted:
            found += 1
    return found


def any_of(items: Iterable[Any]) -> bool:
    """`any(items)`."""
    for item in items:
        if item:
            return True
    return False


def all_of(items: Iterable[Any]) -> bool:
    """`all(items)`."""
    for item in items:
        if not item:
            return False
    return True


def largest(items: Iterable[Any], key: Any, default: Any) -> Any:
    """`max(items, key=key)`, with a default in a list, if there is one."""
    found, rank, first = None, None, True
    for item in items:
        value = item if key is None else key(item)
        if first or value > rank:
            found, rank, first = item, value, False
    if first:
        if not default:
            raise ValueError("max() arg is an empty sequence")
        return default[0]
    return found


def smallest(items: Iterable[Any], key: Any, default: Any) -> Any:
    """`min(items, key=key)`, with a default in a list, if there is one."""
    found, rank, first = None, None, True
    for item in items:
        value = item if key is None else key(item)
        if first or value < rank:
            found, rank, first = item, value, False
    if first:
        if not default:
            raise ValueError("min() arg is an empty sequence")
        return default[0]
    return found


def equal(left: Any, right: Any) -> bool:
    """Whether two lists of one length hold equal elements."""
    if len(left) != len(right):
        return False
    for k in range(len(right)):
        if left[k] is not right[k] and left[k] != right[k]:
            return False
    return True
