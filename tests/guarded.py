"""Memory between pages that nobody may touch, for all that programs work on: it ends where one begins, or begins where
one ends.

    guard(at_the_end)           # from here on: every buffer of an arena, every thread's scratch, stacks, results
    x = guarded(array, at_the_end)      # an argument

What reads or writes beyond it ends the process, so programs are run so in a process of their own.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenon.capture import donation, fast_call_runs
from tenon.program.backend_interface import Array
from tenon.runtime import arena_planning, buffer_pool, program, program_layout, run_frame, stack_region
from tenon.runtime.program_layout import Layout

PAGE = mmap.PAGESIZE
LINE = arena_planning.ALIGNMENT
UNUSED = 0xA5               # no number that anybody expects
C = ctypes.CDLL(None, use_errno=True)


Gap = Callable[[int], int]      # how much of its pages stays free before memory of a size


def at_the_end(size: int) -> int:
    """Memory ends at a wall."""
    return _pages(size) - size


def at_the_start(size: int) -> int:
    """Memory begins at a wall."""
    return 0


def guard(gap: Gap) -> None:
    """Let all memory be such memory, of small results too."""
    replace(program_layout, "plan_arena", partial(plan_apart, gap=gap))
    replace(program, "make_layout", partial(layout_apart, gap=gap))
    replace(program.Program, "_take_arena", take_arena)
    for module in (run_frame, buffer_pool, stack_region):
        replace(module, "aligned_bytes", partial(walled, gap=gap))
    for module in (buffer_pool, fast_call_runs, donation):
        replace(module, "MIN_POOLED_BYTES", 0)


def replace(owner: Any, name: str, value: Any) -> None:
    """Put this in the place of what has this name there: a name that is gone would guard nothing."""
    assert hasattr(owner, name), name
    setattr(owner, name, value)


def guarded(array: Array, gap: Gap) -> Array:
    """A copy that lies so."""
    made = walled(array.nbytes, gap).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def walled(size: int, gap: Gap) -> Array:
    start = PAGE + gap(size)
    return between_walls(_pages(size) + 2 * PAGE, [(start, size)])[start:][:size]


def between_walls(size: int, used: Sequence[tuple[int, int]]) -> Array:
    """Pages of which those can be touched that hold what is used: (start, size)."""
    whole = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    whole[:] = UNUSED
    free = np.zeros(size // PAGE, bool)
    for start, length in used:
        free[start // PAGE:-(-(start + length) // PAGE)] = length > 0
    for page in np.flatnonzero(~free):
        assert C.mprotect(ctypes.c_void_p(whole.ctypes.data + int(page) * PAGE), ctypes.c_size_t(PAGE), 0) == 0
    return whole


class Apart(arena_planning.ArenaPlan):
    """A plan that gives every buffer pages of its own; `used` says which bytes of them."""

    used: list[tuple[int, int]]


def plan_apart(buffers: Sequence[arena_planning.ArenaBuffer], gap: Gap) -> Apart:
    used, end = [], PAGE
    for buffer in buffers:
        used.append((end + gap(buffer.size), buffer.size))
        end += _pages(buffer.size) + PAGE
    plan = Apart(tuple(start for start, _ in used), end, 0)
    object.__setattr__(plan, "used", used)
    return plan


def layout_apart(*arguments: Any, gap: Gap, make: Callable[..., Layout] = program_layout.make_layout) -> Layout:
    """A layout in which the scratch of every thread is so too."""
    made = make(*arguments)
    plan: Any = made.memory
    size = -(-made.scratch // LINE) * LINE
    first, apart = plan.size + gap(size), _pages(size) + PAGE
    made.memory = Apart(plan.offsets, first, 0)
    object.__setattr__(made.memory, "used", plan.used + [(first + k * apart, size) for k in range(made.threads)])
    made.scratch = apart
    return made


def take_arena(self: program.Program, made: Layout) -> Array:
    plan: Any = made.memory
    return between_walls(_pages(plan.size + made.scratch * made.threads), plan.used)


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
