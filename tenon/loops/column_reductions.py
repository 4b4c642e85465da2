"""Reductions whose elements are neighbours across results: sums of columns, layer by layer over a tile of results.

    for j in tiles:                       the elements x[k, j] of one k are contiguous, those of one j are not
        r[jj] = 0                         so a row of partial results stays in the first cache,
        for k: r[jj] += x[k, j + jj]      and each row of x is added to it
        out[j + jj] = r[jj]

Where a target stores whole columns of what depends on their reductions, as a softmax of columns does, its other loops
are inside of the tile: `for i: out[i, j + jj] = x[i, j + jj] - r[jj]`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from tenon.loops.affine import affine, is_same
from tenon.loops.compute_at import ComputeAt, LoopScope
from tenon.loops.cost import count, known
from tenon.loops.expressions import OPERATION, Binary, Buffer, Cast, Expr, Index, Load, Reduce, identity, size
from tenon.loops.loop_ir import Loop, Nest, Stmt, Store
from tenon.loops.rfactor import accumulated
from tenon.loops.simplify_expressions import Substitution, simplify, substitute
from tenon.loops.store_target import StoreTarget, grain_of
from tenon.loops.traversal import parts, replace, walk
from tenon.types import TensorType

TILE_RESULTS = 256
LINE_UNROLL = 4         # that are added at once
MIN_ROW_RESULTS = 16  # results of a row of whole columns
MIN_PARALLEL_RESULTS = 16 * TILE_RESULTS    # results that keep the threads busy
MAX_ROWS = 1024     # of a tile that is gone through several times, in the second cache
SIMPLE = 24         # sub-expressions of a line that is worth repeating


def column_nest(targets: Sequence[StoreTarget]) -> Nest | None:
    """The nest, if all targets have the same loops and their reductions run across the innermost one."""
    loops = targets[0].indices
    if not loops or any(t.indices != loops or t.combine or t.extents for t in targets):
        return None
    found = [x for x in walk(*(t.value for t in targets)) if isinstance(x, Reduce)]
    if not found or not all(may_be_interchanged(x, loops[-1]) and lies_across(x, loops[-1]) for x in found):
        return None
    return _tiled(targets, found)


def in_columns(target: StoreTarget) -> frozenset[Index] | None:
    """The loops around the reductions of a target that stores whole columns of them; None for any other target."""
    found = parts(target.value, Reduce)
    if not found or not target.indices or target.extents or target.combine:
        return None
    *others, column = target.indices
    around = frozenset(others).intersection(*(x.free for x in found))
    inside = [i for i in others if i not in around]
    sizes = [i.extent for i in target.indices]
    if not inside or not all(isinstance(n, int) for n in sizes) or column.extent < MIN_ROW_RESULTS:
        return None
    if count(*around, column) < MIN_PARALLEL_RESULTS or count(*inside) > MAX_ROWS:
        return None
    alike = all(x.free.intersection(others) == around and may_be_interchanged(x, column) and lies_across(x, column)
                for x in found)
    return around if alike else None


def may_be_interchanged(x: Reduce, column: Index) -> bool:
    """Whether the loop over columns may stand inside of those of x, with a row of partial results (loop interchange).

    Each column's elements are still combined in the order in which they were: only the columns take turns.  So it is
    legal where the loops of x run as far for each column, and all reductions inside of x are finished before it.
    """
    rectangular = not any(column in extent.free for extent in x.extents)
    return column in x.free and rectangular and all(y.free.isdisjoint(x.indices) for y in parts(x.body, Reduce))


def is_across(x: Reduce, index: Index) -> bool:
    """Whether neighbours in `index` are contiguous in most of what x reads, and neighbours in its own indices are not.
    """
    return index in x.free and not parts(x.body, Reduce) and lies_across(x, index)


def lies_across(x: Reduce, index: Index) -> bool:
    """The same, whether or not other reductions stand inside of x; what a row of results reads once does not count."""
    votes = 0
    for load in parts(x.body, Load):
        if known(index.extent) >= MIN_ROW_RESULTS and index not in load.offset.free:
            continue
        terms = affine(load.offset).terms
        elements = count(*load.offset.free)
        votes += elements * (is_same(terms.get(index, 0), 1) - is_same(terms.get(x.indices[-1], 0), 1))
    return votes > 0


def _tiled(targets: Sequence[StoreTarget], reductions: Sequence[Reduce]) -> Nest:
    """The nest; a reduction comes after those inside of it."""
    *others, column = targets[0].indices
    shared = in_columns(targets[0])
    tile = _ColumnTile(column)
    outer = [*(i for i in others if shared is None or i in shared), tile.index]
    rows = [i for i in others if i not in outer]
    top = LoopScope()
    scopes = _nested(top, outer)
    for x in reductions:
        tile.add_up(x, scopes[-1])
    tile.store(targets, rows, scopes[-1])
    first, *rest = outer
    _close(scopes[1:], rest)
    grain = grain_of(targets, [*rest, *rows, tile.lane])
    top.body.append(Loop(first, size(first.extent), tuple(scopes[1].body), "parallel", grain))
    return Nest(tuple(top.body), tuple(tile.buffers))


class _ColumnTile:
    """Some neighbouring columns: their sums, a row each of local memory, and what is stored of them."""

    def __init__(self, column: Index) -> None:
        extent = column.extent
        width = min(TILE_RESULTS, extent) if isinstance(extent, int) else TILE_RESULTS
        self.index = Index("tile", -(-extent // width) if isinstance(extent, int) else (extent + (width - 1)) // width)
        self.width, self.lane = width, Index("lane", width)
        left = size(extent) - self.index * size(width)
        whole = isinstance(extent, int) and extent % width == 0
        self.lanes = size(width) if whole else Binary("min", size(width), simplify(left))
        self.moved = Substitution({column: simplify(self.index * size(width) + self.lane)})
        self.numbers = itertools.count()
        self.buffers: list[Buffer] = []
        self.sums: dict[Expr, Expr] = {}

    def add_up(self, x: Reduce, body: LoopScope) -> None:
        """The loops that make the row of sums."""
        wide = accumulated(x.dtype)
        buffer = Buffer(f"r{len(self.buffers)}", TensorType(wide, (self.width,)), "local")
        self.buffers.append(buffer)
        so_far = Load(buffer, self.lane, None)
        self.sums[x] = so_far if wide is x.dtype else Cast(so_far, x.dtype)
        self._along_lanes(body, Store(buffer, self.lane, identity(x.kind, wide)))
        moved = self.moved(replace(x.body, self.sums))
        for index, extent, positions in _groups(x):
            indices = (*x.indices[:-1], index)
            scopes = _nested(body, indices)
            deepest = LoopScope(scopes[-1], self.lane)
            value: Expr = so_far
            for at in positions:
                line = substitute(moved, {x.indices[-1]: at})
                value = Binary(OPERATION[x.kind], value, simplify(Cast(line, wide)))
            placed = ComputeAt(value, numbers=self.numbers).place(value, deepest)
            self._along_lanes(scopes[-1], *deepest.body, Store(buffer, self.lane, placed))
            _close(scopes, indices, (*x.extents[:-1], extent))

    def store(self, targets: Sequence[StoreTarget], rows: Sequence[Index], body: LoopScope) -> None:
        """The loops over rows that store what depends on the sums."""
        scopes = _nested(body, rows)
        last = LoopScope(scopes[-1], self.lane)
        values = [self.moved(replace(t.value, self.sums)) for t in targets]
        moved = [StoreTarget(t.buffer, t.indices, self.moved(t.offset), value)
                 for t, value in zip(targets, values, strict=True)]
        ComputeAt(*values, numbers=self.numbers).store(moved, last)
        self._along_lanes(scopes[-1], *last.body)
        _close(scopes, rows)

    def _along_lanes(self, scope: LoopScope, *statements: Stmt) -> None:
        scope.body.append(Loop(self.lane, self.lanes, statements, "vector"))


def _nested(outermost: LoopScope, indices: Iterable[Index]) -> list[LoopScope]:
    """The scope, and those of loops one inside of the other in it."""
    scopes = [outermost]
    for index in indices:
        scopes.append(LoopScope(scopes[-1], index))
    return scopes


def _close(scopes: Sequence[LoopScope], indices: Sequence[Index], extents: Sequence[Expr] | None = None) -> None:
    """Put the loops of nested scopes, which are filled, into each other."""
    iterations = [size(i.extent) for i in indices] if extents is None else extents
    for index, extent, scope, around in reversed(list(zip(indices, iterations, scopes[1:], scopes[:-1], strict=True))):
        around.body.append(Loop(index, extent, tuple(scope.body)))


def _groups(x: Reduce) -> list[tuple[Index, Expr, list[Expr]]]:
    """(a loop along the last axis, its iterations, the positions of an iteration): several lines at once, then those
    left over."""
    k, extent = x.indices[-1], x.extents[-1]
    bound = k.extent // LINE_UNROLL if isinstance(k.extent, int) else k.extent
    if len(walk(x.body)) > SIMPLE or (isinstance(bound, int) and bound == 0):
        return [(k, extent, [k])]
    iteration, rest = Index(k.name, bound), Index(k.name + "_left", LINE_UNROLL)
    iterations, left = (simplify(Binary(op, extent, size(LINE_UNROLL))) for op in ("//", "%"))
    unrolled = [iteration * size(LINE_UNROLL) + size(n) for n in range(LINE_UNROLL)]
    groups: list[tuple[Index, Expr, list[Expr]]] = [(iteration, iterations, unrolled)]
    return groups if left is size(0) else [*groups, (rest, left, [iterations * size(LINE_UNROLL) + rest])]
