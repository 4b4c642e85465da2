"""Locks that do not outlive a fork: a child has one thread, and none that would ever open what another one closed.

A `cached_property` has none: that of Python 3.11 holds one for all objects while it computes, so that threads compile
one after the other, and a child that was forked meanwhile waits for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from _thread import RLock
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, Self, TypeVar, overload

from tenon.gc_control import COLLECTOR

T = TypeVar("T")


class Lock(RLock):                      # type: ignore[misc]
    """A lock that one thread may take several times, and that is open in a forked child.

    It is entered and left in C, so no Ctrl-C comes between the lock and the `with` that opens it again.

    >>> from tenon.locks import Lock
    >>> lock = Lock()
    >>> with lock, lock:
    ...     pass
    """

    def __init__(self) -> None:
        _locks.add(self)


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _after_fork() -> None:
    """Open what other threads held; what this one holds it opens itself."""
    for lock in list(_locks):
        if not lock._is_owned():                # type: ignore[attr-defined]
            lock._at_fork_reinit()              # type: ignore[attr-defined]


class cached_property(Generic[T]):
    """A method that is called once for an object; where threads call it at once, all get the same.

    >>> from tenon.locks import cached_property
    >>> class Sum:
    ...     @cached_property
    ...     def value(self):
    ...         return sum(range(10))
    >>> Sum().value
    45
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object, owner: type | None = None) -> T | Self:
        if instance is None:
            return self
        made: T = vars(instance).setdefault(self.name, self.function(instance))
        return made


class Unforked:
    """Around what a child must never find half done, as an import: a fork waits for it, and so do finalizers."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._others: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        COLLECTOR.pause()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()
        COLLECTOR.resume()

    def wait_for(self, lock: AbstractContextManager[Any]) -> None:
        """Let forks wait for another library's lock too, so that no child finds it closed.

        Where Python were told of it while a fork waits, it would be opened after that without having been closed.
        """
        with self:
            self._others.append(lock)

    def begin_fork(self) -> None:
        self.lock.acquire()
        for lock in self._others:
            lock.__enter__()

    def end_fork(self) -> None:
        for lock in reversed(self._others):
            lock.__exit__(None, None, None)
        self.lock.release()


unforked = Unforked()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
    os.register_at_fork(before=unforked.begin_fork, after_in_parent=unforked.end_fork, after_in_child=unforked.end_fork)
