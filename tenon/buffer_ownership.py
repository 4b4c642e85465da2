"""Which arrays nobody but Tenon writes to, so that what was computed from their elements stays true.

    adopted(array)      the array as a payload that somebody else may write to: a view that is marked read-only
    exported(array)     somebody else is given the memory, and may write there
    is_private(array)   neither has happened to this memory
    watch(array)        count in `EXPORTS` when it happens

What NumPy makes of a read-only array without a copy is read-only too, so the mark goes along with views.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

EXPORTS = np.zeros(1, np.int64)     # how often watched memory was handed out: a word that machine code can look at
_exported: dict[int, weakref.ref[Any]] = {}     # by the identity of the array that owns the memory
_watched: dict[int, weakref.ref[Any]] = {}


def adopted(array: np.ndarray) -> np.ndarray:
    """A view of an array that belongs to somebody else."""
    view = array.view()
    view.flags.writeable = False
    return view


def exported(array: np.ndarray) -> None:
    """Note that somebody else may write to the memory of an array from now on."""
    _note(_exported, array)
    if id(_owner(array)) in _watched:
        EXPORTS[0] += 1


def watch(array: np.ndarray) -> None:
    """Let `EXPORTS` count when the memory of an array is handed out."""
    _note(_watched, array)


def is_private(array: np.ndarray) -> bool:
    """Whether nobody but Tenon can write to the memory of an array.

    >>> is_private(np.ones(2)), is_private(adopted(np.ones(2)))
    (True, False)
    """
    return array.flags.writeable and id(_owner(array)) not in _exported


def _note(table: dict[int, weakref.ref[Any]], array: np.ndarray) -> None:
    owner = _owner(array)
    key = id(owner)
    table[key] = weakref.ref(owner, lambda _: table.pop(key, None))


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory it is."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
