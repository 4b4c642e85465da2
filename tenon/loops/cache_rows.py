"""Rows that several loops need -> local memory that the first of these loops fills and the others read.

    for i:                                              for i:
        m = sum(exp(x[i, k]) for k)                         for k: row[k] = exp(x[i, k]); m += row[k]
        for j: out[i, j] = exp(x[i, j]) / m                 for j: out[i, j] = row[j] / m

A row is kept where computing an element again costs more than storing it once and loading it, and where it is of sums.
Who reads it is decided where loops are placed: `tenon.loops.compute_at.is_available`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.loops.cost import operations
from tenon.loops.expressions import Buffer, Expr, Index, Reduce, size
from tenon.loops.simplify_expressions import Substitution, substitute
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import walk
from tenon.records import dataclass
from tenon.types import TensorType, int64

STORE_AND_LOAD = 0.9        # of an element of a row, as tenon.loops.cost counts operations; rows crowd the first cache


@dataclass(frozen=True)
class KeptElement:
    """What stands for an element of a row: `buffer[index]`, in a loop over the index."""

    buffer: Buffer
    index: Index


@dataclass(frozen=True)
class _RowLoop:
    """A loop whose body computes the roots; one that needs others has a higher level."""

    level: int
    index: Index
    roots: tuple[Expr, ...]


def kept_rows(targets: Sequence[StoreTarget], loops: Sequence[Index]) -> dict[Expr, KeptElement]:
    """The expressions that stand for elements of rows to be kept."""
    listed = sorted(_row_loops(targets, loops), key=lambda loop: loop.level)
    first: dict[Expr, _RowLoop] = {}
    rows: dict[Expr, Buffer] = {}
    kept: dict[Expr, KeptElement] = {}
    for loop in listed:
        lane = Index("lane", loop.index.extent)
        in_row = Substitution({loop.index: lane})
        stack = list(loop.roots)
        done: set[Expr] = set()
        while stack:
            x = stack.pop()
            if x in done or loop.index not in x.free:
                continue
            done.add(x)
            if x.dtype is int64:        # a position, or what is found there
                stack.extend(x.children())
                continue
            row = in_row(x)
            earlier = first.setdefault(row, loop)
            if (earlier.level, earlier.index) == (loop.level, loop.index) or not _is_kept(x, loop.index):
                stack.extend(x.children())
                continue
            buffer = rows.setdefault(row, Buffer(f"row{len(rows)}", TensorType(x.dtype, (lane.extent,)), "local"))
            for index in (earlier.index, loop.index):
                kept[substitute(row, {lane: index})] = KeptElement(buffer, index)
    return kept


def _row_loops(targets: Sequence[StoreTarget], loops: Sequence[Index]) -> Iterator[_RowLoop]:
    """The loops along whole rows inside of the outermost one: those of reductions, and the innermost of the targets."""
    values = [t.value for t in targets]
    levels: dict[Expr, int] = {}
    for x in walk(*values):
        levels[x] = max((levels[child] for child in x.children()), default=0) + isinstance(x, Reduce)
        if isinstance(x, Reduce) and x.free and x.free <= set(loops) and _is_whole(x):
            yield _RowLoop(levels[x], x.indices[0], (x.body,))
    last = tuple(t.value for t in targets if len(t.indices) == len(loops))
    if len(loops) > 1:
        yield _RowLoop(1 + max(levels.values()), loops[-1], last)


def _is_whole(x: Reduce) -> bool:
    """Whether x is reduced along one row, from end to end."""
    return len(x.indices) == 1 and x.extents == (size(x.indices[0].extent),)


def _is_kept(x: Expr, index: Index) -> bool:
    """Whether x costs more than a place in a row, or is a sum, which another loop might add up in another order."""
    is_sum = isinstance(x, Reduce) and x.kind in ("add", "mul") and x.dtype.kind == "f"
    return is_sum or _work(x, index) > STORE_AND_LOAD


def _work(x: Expr, index: Index) -> float:
    """What computing x costs in every iteration of a loop."""
    return sum(operations(part) for part in walk(x) if index in part.free)
