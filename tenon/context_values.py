"""A context variable that has another value within a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def during(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """A block in which the variable has this value, in this thread.

    >>> level = ContextVar("level", default=0)
    >>> with during(level, 2):
    ...     level.get()
    2
    """
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
