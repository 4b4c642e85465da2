"""Memory for the results of a run, and for large ones of eager calls, used again once nobody holds a result in it.

    result = take((4096, 1024), np.dtype(np.float32))

The system hands out large memory as fresh pages, and clears them: that takes as long as filling them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.runtime.arena_planning import aligned_bytes
from tenon.runtime.guard_pages import guarded, guarding

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_POOLED_BYTES = 1 << 18  # bytes; the allocator keeps what is smaller
UNMAPPED_BYTES = 1 << 25    # bytes; the allocator returns to the system at once what is larger
MAX_IDLE = 1 << 28          # bytes that wait to be used again

_idle: dict[int, list[Any]] = {}    # by size; lists are changed by single operations, so no lock is needed


def _give_back(memory: Any, idle: dict[int, list[Any]] = _idle, most: int = MAX_IDLE) -> None:
    size = len(memory)
    waiting = sum(size * len(blocks) for size, blocks in list(idle.items()))
    if waiting + size > most:
        idle.clear()
    idle.setdefault(size, []).append(memory)


def let_go(idle: dict[int, list[Any]] = _idle) -> None:
    """Free what waits to be used again.

    >>> let_go()
    """
    idle.clear()


class Lease(np.ndarray):
    """The bytes of a result, which all views of the result hold; its base is no array, so that NumPy keeps to that."""

    # The names are bound here: when Python ends, modules are emptied before all that lies in them has gone.
    def __del__(self, kind: Any = ctypes.Array, give_back: Callable[[Any], None] = _give_back) -> None:
        memory: Any = self.base
        if isinstance(memory, kind) and self.nbytes == len(memory):
            give_back(memory)


def take(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of uninitialised elements."""
    if guarding():
        return guarded(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < MIN_POOLED_BYTES:
        return np.empty(shape, dtype)
    try:
        memory = _idle[size].pop()
    except (KeyError, IndexError):
        fresh: Any = aligned_bytes(size)
        memory = (ctypes.c_char * size).from_buffer(fresh)
    return np.ndarray(shape, dtype, buffer=Lease((size,), np.uint8, memory))


def filled(ufunc: Callable[..., Any], dtype: np.dtype[Any], *arrays: NDArray[Any]) -> Any:
    """What a ufunc gives, in such memory; where elements do not lie in order, as NumPy lays them, so that sums of them
    have the same order everywhere.
    """
    if not all(x.flags.c_contiguous for x in arrays):
        return ufunc(*arrays)
    return ufunc(*arrays, out=take(np.broadcast_shapes(*[x.shape for x in arrays]), dtype))
