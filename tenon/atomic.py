"""Calls of functions written in C -> all of them before Python does anything else.

    at_once(starmap(setattr, [(x, "own", state), (y, "own", other)]))

Python handles signals, and lets other threads run, between its own instructions.  A loop in C that calls functions in C
has none, so a handler, whoever catches a KeyboardInterrupt, and other threads see what was before it or after it.

What a store replaces may have a finalizer, which is Python: so whoever stores keeps it until the loop is over.
Nothing here makes an object that Python's collector counts, since Python 3.11 may look for cycles where one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat, starmap
from operator import contains
from typing import Any

Store = tuple[Any, ...]     # a function and its arguments


def at_once(stores: Iterable[Any], unless: Iterable[Any] = ()) -> bool:
    """Make the calls of an iterator in C, unless one of the answers before them is true; whether they were made.

    >>> seen = []
    >>> at_once(map(seen.append, [1, 2]), unless=map(bool, [0, ""])), seen
    (True, [1, 2])
    >>> at_once(map(seen.append, [3]), unless=map(bool, [0, 1])), seen
    (False, [1, 2])
    """
    return not any(chain(unless, ignored(stores)))


def ignored(answers: Iterable[Any]) -> Iterator[bool]:
    """Takes what is computed where it is asked for, and says False each time."""
    return map(contains, repeat(()), answers)


def later(function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """The one answer of a call that is made when somebody asks."""
    return starmap(function, (arguments,))


def keep(held: Any) -> Store:
    """A store that does nothing but hold an object until all are done."""
    return id, held
