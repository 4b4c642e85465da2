"""Buffers with sizes and lifetimes -> their places in one arena; and the aligned memory that such an arena is.

    plan = plan_arena([Buffer(4096, 0, 1), Buffer(4096, 1, 2), Buffer(4096, 2, 3)])
    plan.offsets, plan.size       # (0, 4096, 0), 8192

Buffers alive at the same step must not overlap.  The smallest arena is a packing problem (dynamic storage
allocation), so this is greedy: buffer after buffer into the tightest gap that is free during its life, in a few
orders of which the best is kept (Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # a cache line, and the widest vector
HUGE_PAGE = 2 * 2**20
FEW = 2000  # up to this many buffers every order is tried; beyond, until one is near enough to the bound
NEAR = 1.02


@dataclass(frozen=True)
class Buffer:
    """Alive from step `first` to step `last`, both included.

    `shares` asks for the place of another buffer (by index), for an operation done in place: it is granted if that
    buffer ends at the very step where this one begins, has the same size, and was not given to another.
    """

    size: int
    first: int
    last: int
    alignment: int = ALIGNMENT
    shares: int | None = None


@dataclass(frozen=True)
class Plan:
    offsets: tuple[int, ...]
    size: int
    lower_bound: int  # the most bytes alive at one step: no plan is smaller

    @property
    def gap(self) -> float:
        """How much larger than the bound, as a fraction of it."""
        return self.size / self.lower_bound - 1 if self.lower_bound else 0.0


def plan_arena(buffers: Sequence[Buffer]) -> Plan:
    """Give every buffer an offset, so that none overlaps another that is alive at the same time."""
    holder = _grant_shares(buffers)
    places = sorted(set(holder))  # the buffers that need a place of their own
    row = {index: number for number, index in enumerate(places)}
    spans = np.zeros((len(places), 4), np.int64)  # size, first, last, alignment
    for index in places:
        buffer = buffers[index]
        assert buffer.size >= 0 and buffer.first <= buffer.last, buffer
        spans[row[index]] = (_round_up(buffer.size, ALIGNMENT), buffer.first, buffer.last, buffer.alignment)
    for index, buffer in enumerate(buffers):
        span = spans[row[holder[index]]]
        span[2], span[3] = max(span[2], buffer.last), max(span[3], buffer.alignment)

    bound = _peak(spans)
    best: NDArray[np.int64] | None = None
    best_size = 0
    for order in ORDERS:
        offsets = _place(spans, np.lexsort(order(spans)))
        size = int((offsets + spans[:, 0]).max(initial=0))
        if best is None or size < best_size:
            best, best_size = offsets, size
        if best_size == bound or (len(places) > FEW and best_size <= bound * NEAR):
            break
    assert best is not None
    return Plan(tuple(int(best[row[index]]) for index in holder), best_size, bound)


# Keys for lexsort, the most important last: which buffer is placed first, second, ...
ORDERS: tuple[Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], ...]], ...] = (
    lambda s: (s[:, 1], s[:, 1] - s[:, 2], -s[:, 0]),  # the largest first, of equals the one that lives longest
    lambda s: (s[:, 1], -s[:, 0] * (s[:, 2] - s[:, 1] + 1)),  # the one that takes most bytes times steps
    lambda s: (-s[:, 0], s[:, 1] - s[:, 2]),  # the one that lives longest
    lambda s: (-s[:, 0], s[:, 1]),  # as they come to life
)


def _place(spans: NDArray[np.int64], order: NDArray[np.intp]) -> NDArray[np.int64]:
    """Offsets, when buffers take the tightest free gap in this order.  Quadratic, but in vector operations."""
    count = len(spans)
    offsets = np.zeros(count, np.int64)
    starts, ends, firsts, lasts = np.zeros((4, count), np.int64)  # of the placed ones, by where they start
    placed = 0
    for index in order:
        size, first, last, alignment = (int(x) for x in spans[index])
        if size == 0:
            continue
        beside = np.flatnonzero((firsts[:placed] <= last) & (lasts[:placed] >= first))
        offset = 0
        if beside.size:
            filled = np.maximum.accumulate(ends[beside])  # everything below is taken, or wasted between two neighbours
            below = _round_up(np.concatenate(([0], filled)), alignment)
            room = starts[beside] - below[:-1]
            fits = np.flatnonzero(room >= size)
            offset = int(below[fits[np.argmin(room[fits])]] if fits.size else below[-1])
        offsets[index] = offset
        where = int(np.searchsorted(starts[:placed], offset, side="right"))
        for column, value in ((starts, offset), (ends, offset + size), (firsts, first), (lasts, last)):
            column[where + 1 : placed + 1] = column[where:placed]
            column[where] = value
        placed += 1
    return offsets


def _grant_shares(buffers: Sequence[Buffer]) -> list[int]:
    """For every buffer the one whose place it takes: itself, or the first in a chain of in-place operations."""
    holder = list(range(len(buffers)))
    given: set[int] = set()
    for index in sorted(holder, key=lambda i: (buffers[i].first, i)):
        buffer, other = buffers[index], buffers[index].shares
        if other is None or other in given or other == index:
            continue
        source = buffers[other]
        fits = _round_up(source.size, ALIGNMENT) == _round_up(buffer.size, ALIGNMENT)
        if fits and source.last == buffer.first and source.first < buffer.first:
            holder[index] = holder[other]
            given.add(other)
    return holder


def _peak(spans: NDArray[np.int64]) -> int:
    """The most bytes alive at one step."""
    steps = np.concatenate((spans[:, 1], spans[:, 2] + 1))
    changes = np.concatenate((spans[:, 0], -spans[:, 0]))
    order = np.lexsort((changes, steps))  # at one step, what ends goes before what begins
    return int(np.cumsum(changes[order]).max(initial=0))


def _round_up(size: Any, multiple: int) -> Any:
    return -(-size // multiple) * multiple


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """Uninitialised memory that starts at a cache line; large memory at a huge page, which NumPy asks for."""
    alignment = HUGE_PAGE if size >= 2 * HUGE_PAGE else ALIGNMENT
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]
