"""Buffers with sizes and lifetimes -> their places in one arena; and the aligned memory that such an arena is.

    plan = plan_arena([Buffer(4096, 0, 1), Buffer(4096, 1, 2), Buffer(4096, 2, 3)])
    plan.offsets, plan.size       # (0, 4096, 0), 8192

Buffers alive at the same step must not overlap.  The smallest arena is a packing problem (dynamic storage allocation),
so this is greedy: buffer after buffer into the tightest gap that is free during its life, in a few orders of which the
best is kept and then mended (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tenon.records import dataclass
from tenon.target import round_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 64  # a cache line, and the widest vector
HUGE_PAGE = 2 * 2**20
Ints: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True)
class ArenaBuffer:
    """Alive from step `first` to step `last`, both included; steps count from 0.

    `shares` asks for the place of another buffer (by index), for an operation done in place: it is granted if that
    buffer ends at the very step where this one begins, has the same size, and was not given to another.
    """

    size: int
    first: int
    last: int
    alignment: int = ALIGNMENT
    shares: int | None = None


@dataclass(frozen=True)
class ArenaPlan:
    offsets: tuple[int, ...]
    size: int
    lower_bound: int  # the most bytes alive at one step: no plan is smaller
    walls: tuple[int, ...] = ()     # pages that nobody may touch (`tenon.runtime.guard_pages`)

    @property
    def gap(self) -> float:
        """How much larger than the bound, as a fraction of it."""
        return self.size / self.lower_bound - 1 if self.lower_bound else 0.0


def plan_arena(buffers: Sequence[ArenaBuffer]) -> ArenaPlan:
    """Give every buffer an offset, so that none overlaps another that is alive at the same time."""
    holder = _grant_shares(buffers)
    spans = _spans(buffers, holder)
    live = _live_bytes(spans)
    bound = int(live.max(initial=0))
    best: _Placed | None = None
    for order in _orders(spans, live):
        placed = _place(spans, order)
        best = placed if best is None or placed.size < best.size else best
        if best.size == bound:
            break
    assert best is not None
    if best.size > bound:
        best = _mend(spans, best, bound)
    return ArenaPlan(tuple(int(best.offsets[index]) for index in holder), best.size, bound)


class _Spans(NamedTuple):
    """Columns, one row a buffer."""

    size: Ints
    first: Ints
    last: Ints
    alignment: Ints


class _Placed(NamedTuple):
    offsets: Ints
    size: int  # of the arena
    order: Ints  # in which they were placed


def _spans(buffers: Sequence[ArenaBuffer], holder: Sequence[int]) -> _Spans:
    """What has to be placed: a holder lives as long as all that share its place, who themselves take none."""
    rows = [[round_up(b.size, ALIGNMENT), b.first, b.last, max(b.alignment, ALIGNMENT)] for b in buffers]
    for index, buffer in enumerate(buffers):
        assert buffer.size >= 0 and 0 <= buffer.first <= buffer.last, buffer
        if holder[index] != index:
            place = rows[holder[index]]
            place[2], place[3] = max(place[2], buffer.last), max(place[3], buffer.alignment)
            rows[index][0] = 0
    return _Spans(*np.array(rows, np.int64).reshape(-1, 4).T)


def _orders(spans: _Spans, live: Ints) -> Iterator[Ints]:
    """Which buffer is placed first, second, ...: those alive when most is alive, or the largest, or the most costly."""
    size, first, last, _ = spans
    crowd = np.array([live[begin : end + 1].max() for begin, end in zip(first, last, strict=True)], np.int64)
    yield np.lexsort((first, -size, -crowd))
    yield np.lexsort((first, first - last, -size))
    yield np.lexsort((first, -size * (last - first + 1)))


def _mend(spans: _Spans, best: _Placed, bound: int) -> _Placed:
    """Place whatever sticks out at the top earlier, again and again; the best of all that was seen."""
    placed = best
    for _ in range(min(30, 20_000 // len(best.order))):  # about a second at most
        worst = int(np.argmax(placed.offsets + spans.size))
        where = int(np.flatnonzero(placed.order == worst)[0])
        placed = _place(spans, np.insert(np.delete(placed.order, where), where // 2, worst))
        best = placed if placed.size < best.size else best
        if best.size == bound:
            break
    return best


def _place(spans: _Spans, order: Ints) -> _Placed:
    """Where buffers come to lie when each, in this order, takes the tightest gap.

    Quadratic in the number of buffers, but in vector operations: 5000 take 0.3 s.
    """
    offsets = np.zeros(len(order), np.int64)
    columns = np.zeros((4, len(order)), np.int64)   # of the placed ones, by where they start
    starts, ends, firsts, lasts = columns
    placed = 0
    rows = np.stack(spans, axis=1)[order].tolist()
    for index, (size, first, last, alignment) in zip(order.tolist(), rows, strict=True):
        if size == 0:
            continue
        beside = np.flatnonzero((firsts[:placed] <= last) & (lasts[:placed] >= first))
        offset = 0
        if beside.size:
            below = np.zeros(beside.size + 1, np.int64)     # where a gap begins: before each, after all
            np.maximum.accumulate(ends[beside], out=below[1:])
            below = -(-below // alignment) * alignment
            room = starts[beside] - below[:-1]
            fits = np.flatnonzero(room >= size)
            offset = int(below[fits[np.argmin(room[fits])]] if fits.size else below[-1])
        offsets[index] = offset
        where = int(np.searchsorted(starts[:placed], offset, side="right"))
        columns[:, where + 1 : placed + 1] = columns[:, where:placed]
        columns[:, where] = offset, offset + size, first, last
        placed += 1
    return _Placed(offsets, int(ends.max(initial=0)), order)


def _grant_shares(buffers: Sequence[ArenaBuffer]) -> list[int]:
    """For every buffer the one whose place it takes: itself, or the first in a chain of in-place operations."""
    holder = list(range(len(buffers)))
    given: set[int] = set()
    for index in sorted(holder, key=lambda i: buffers[i].first):
        buffer, other = buffers[index], buffers[index].shares
        if other is None or other in given:
            continue
        source = buffers[other]
        same_size = round_up(source.size, ALIGNMENT) == round_up(buffer.size, ALIGNMENT)
        if same_size and source.first < source.last == buffer.first:
            holder[index] = holder[other]
            given.add(other)
    return holder


def _live_bytes(spans: _Spans) -> Ints:
    """At each step."""
    changes = np.zeros(int(spans.last.max(initial=-1)) + 2, np.int64)
    np.add.at(changes, spans.first, spans.size)
    np.add.at(changes, spans.last + 1, -spans.size)
    return np.cumsum(changes)


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """Uninitialised memory that starts at a cache line; large memory at a huge page, which NumPy asks for."""
    alignment = HUGE_PAGE if size >= 2 * HUGE_PAGE else ALIGNMENT
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]
