"""What the functions of one program can change in Python -> its state before one is looked at, to be put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from tenon.capture.code_monitor import UnsafeCall, unwatched
from tenon.capture.effects import Snapshot
from tenon.capture.guard_discovery import Reach
from tenon.errors import user_location


class PythonState:
    """What the functions of one program can reach in Python, found once; what was changed since is looked at anew."""

    def __init__(self) -> None:
        self.reach = Reach(None)
        self.snapshot = Snapshot([], [])

    def before(self, reads: Sequence[Any]) -> Snapshot:
        """What is there now, these functions and what they are given included."""
        for effect in self.snapshot.changes():
            self.reach.add(effect.value, "what the function made")
        for x in reads:
            self.reach.add(x, getattr(x, "__name__", "the function"))
        self.snapshot = Snapshot(list(self.reach.holders.values()), self.reach.cells)
        return self.snapshot


_states: WeakKeyDictionary[Any, PythonState] = WeakKeyDictionary()


def python_state_of(*captures: Any) -> PythonState:
    """What captures within each other share, the outermost last."""
    found = _states.get(captures[-1]) or PythonState()
    _states.update(dict.fromkeys(captures, found))
    return found


@contextmanager
def undone(capture: Any, reads: Sequence[Any], unchanging: str = "") -> Iterator[None]:
    """A block that calls these functions to see what they do: what they change is put back.

    Raises UnsafeCall where that is something, and `unchanging` names what must not.
    """
    if not reads:
        yield
        return
    with unwatched():
        snapshot = python_state_of(capture).before(reads)
    try:
        yield
    finally:
        with unwatched():
            changes = snapshot.changes()
            snapshot.restore()
    if changes and unchanging:
        raise UnsafeCall(f"{unchanging} changes {described(changes[0])} in Python, whenever it is asked for",
                         where=user_location())


def described(effect: Any) -> str:
    """A change in Python, in words."""
    what = f" {effect.key!r}" if effect.kind in ("item", "attribute") else ""
    return f"{effect.kind}{what} of a {type(effect.holder).__name__}"
