"""Memory that ends, or begins, at a page that nobody may touch: what code reads or writes beyond it faults at once.

    TENON_CHECK=guard           arguments, results, arena buffers and scratch end at such a page
    TENON_CHECK=guard_before    they begin right behind one

Arguments and results end there to the byte; what kernels take for aligned ends less than a cache line before.  What was
never written is NaN, or -1, rather than what was there before, so that a result made of it is seen.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.config import config
from tenon.runtime.arena_planning import ALIGNMENT, ArenaBuffer, ArenaPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
UNWRITTEN = 0xFF            # each byte: NaN of all floats
NO_ACCESS = 0               # PROT_NONE


def guarding() -> bool:
    """Whether memory is to be guarded."""
    return bool(config().check & {"guard", "guard_before"})


def guards_before() -> bool:
    """Whether it begins behind a page that nobody may touch."""
    return "guard_before" in config().check


def guarded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array with such a page right behind it, or before it."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = _pages(size)
    raw = _mapped(room + PAGE, [0] if guards_before() else [room])
    start = PAGE if guards_before() else room - size
    return raw[start:start + size].view(dtype).reshape(shape)


def guarded_copy(array: NDArray[Any]) -> NDArray[Any]:
    """The same elements in guarded memory."""
    made = guarded(array.shape, array.dtype)
    made[...] = array
    return made


def guarded_arena(plan: ArenaPlan, size: int) -> NDArray[np.uint8]:
    """The memory of a plan with walls."""
    return _mapped(_pages(size), plan.walls)


def spaced(buffers: Sequence[ArenaBuffer], scratch: int, threads: int) -> tuple[ArenaPlan, int]:
    """(the places of buffers, each with pages and a wall of its own, used once; the bytes from one thread's scratch
    memory to the next, which begins where the plan ends)."""
    walls: list[int] = []
    offsets: list[int] = []
    end = 0
    for buffer in buffers:
        offset, wall, end = _placed(buffer.size, end)
        offsets.append(offset)
        walls.append(wall)
    stride = _pages(scratch) + PAGE
    first, wall, _ = _placed(scratch, end)
    walls += [wall + k * stride for k in range(threads if scratch else 0)]
    size = first if scratch else end
    return ArenaPlan(tuple(offsets), size, size, tuple(walls)), stride if scratch else 0


def _placed(size: int, start: int) -> tuple[int, int, int]:
    """(where so many bytes lie, their wall, where the next may begin)."""
    room = _pages(size)
    end = start + room + PAGE
    if guards_before():
        return start + PAGE, start, end
    return start + room - -(-size // ALIGNMENT) * ALIGNMENT, start + room, end


def _pages(size: int) -> int:
    return max(1, -(-size // PAGE)) * PAGE


def _mapped(size: int, walls: Sequence[int]) -> NDArray[np.uint8]:
    """Fresh pages, but for the walls, where none may be touched; given back when no array holds them."""
    pages = mmap.mmap(-1, size)
    raw = np.frombuffer(pages, np.uint8)
    raw[:] = UNWRITTEN
    for wall in walls:
        if _mprotect()(raw.ctypes.data + wall, PAGE, NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    return raw


@cache
def _mprotect() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
