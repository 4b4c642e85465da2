"""What Python calls, or asks, where code only names a class: `__del__`, protocols, what is registered for it."""

from __future__ import annotations

import types
from abc import ABCMeta, get_cache_token
from collections.abc import Iterator, Set
from typing import Any

LOOKING_UP = frozenset(("getattr", "hasattr"))          # which ask for names that may be absent
TESTING = frozenset(("isinstance", "issubclass"))


def hidden_calls(cls: type, loaded: Set[str]) -> Iterator[str]:
    """Why code that reads these globals and cells, the class among them, may act or depend on what no guard sees."""
    if any(isinstance(vars(base).get("__del__"), types.FunctionType) for base in cls.__mro__):
        yield f"objects of {cls.__name__} act when nothing refers to them any more, by __del__"
    if getattr(cls, "_is_protocol", False) and not TESTING.isdisjoint(loaded):
        yield f"{cls.__name__} is a protocol, which looks for attributes in objects"


def takes_registrations(cls: type, loaded: Set[str]) -> bool:
    """Whether the answer of `isinstance` may be another one once a class is registered."""
    return isinstance(cls, ABCMeta) and not TESTING.isdisjoint(loaded)


def registrations(cls: type) -> tuple[Any, ...]:
    """Another number once something is registered for any abstract class."""
    return (get_cache_token(),)
