"""Classes whose calls with equal arguments give one object, for as long as somebody holds it."""

from __future__ import annotations

from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import ref

MAX_PLACES = 1 << 16       # of objects, before those that are gone are looked for


class Interned(type):
    """Calling the class twice with equal arguments gives one object.

    A `WeakValueDictionary` would call Python whenever one goes; here its place is cleared with many others.
    """

    key: Callable[..., tuple[Any, ...]] | None = None       # what makes two equal, where it is not the arguments
    _table: ClassVar[dict[Any, ref[Any]]] = {}
    _most: ClassVar[int] = MAX_PLACES

    def __call__(cls, *args: Any) -> Any:
        key = (cls, *args) if cls.key is None else (cls, *cls.key(*args))
        held = Interned._table.get(key)
        found = None if held is None else held()
        return cls._make(key, args) if found is None else found

    def _make(cls, key: Any, args: tuple[Any, ...]) -> Any:
        """A new one, without a lock: each of these steps is one to other threads."""
        made, table = super().__call__(*args), Interned._table
        if len(table) >= Interned._most:
            forget_gone()
        reference = ref(made)
        while True:
            held = table.setdefault(key, reference)
            found = made if held is reference else held()
            if found is not None:
                return found
            _remove_dead_weakref(table, key)        # in one step, and only if the object is gone


def forget_gone() -> None:
    """Clear the places of objects that are gone: those made last first, so that what they were made of goes too."""
    keys, table = list(Interned._table), Interned._table
    while keys:
        key = keys.pop()
        held = table.get(key)
        if held is not None and held() is None:
            _remove_dead_weakref(table, key)
    Interned._most = max(MAX_PLACES, 2 * len(table))
