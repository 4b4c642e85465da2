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
from collections.abc import Sequence

from tenon.loops.affine import affine, is_same
from tenon.loops.cost import count, known
from tenon.loops.expressions import OPERATION, Binary, Buffer, Cast, Expr, Index, Load, Reduce, identity, size
from tenon.loops.ir import Loop, Nest, Store
from tenon.loops.placing import Placing, Scope
from tenon.loops.simplify import Substitution, simplify, substitute
from tenon.loops.target import Target, grain_of
from tenon.loops.traversal import parts, replace, walk
from tenon.types import TensorType, float32

TILE = 256
LINES = 4           # that are added at once
LEAST = 16          # results of a row of whole columns
ENOUGH = 16 * TILE  # results that keep the threads busy
MOST_ROWS = 1024    # of a tile that is gone through several times, in the second cache
SIMPLE = 24         # sub-expressions of a line that is worth repeating


def column_nest(targets: Sequence[Target]) -> Nest | None:
    """The nest, if all targets have the same loops and their reductions run across the innermost one."""
    loops = targets[0].indices
    if not loops or any(t.indices != loops for t in targets):
        return None
    found = [x for x in walk(*(t.value for t in targets)) if isinstance(x, Reduce)]
    if not found or not all(_stands_alone(x) and loops[-1] in x.free and lies_across(x, loops[-1]) for x in found):
        return None
    return _tiled(targets, found)


def in_columns(target: Target) -> frozenset[Index] | None:
    """The loops around the reductions of a target that stores whole columns of them; None for any other target."""
    found = parts(target.value, Reduce)
    if not found or not target.indices or target.extents or target.combine:
        return None
    *others, column = target.indices
    around = frozenset(others).intersection(*(x.free for x in found))
    inside = [i for i in others if i not in around]
    sizes = [i.extent for i in target.indices]
    if not inside or not all(isinstance(n, int) for n in sizes) or column.extent < LEAST:
        return None
    if count(*around, column) < ENOUGH or count(*inside) > MOST_ROWS:
        return None
    alike = all(x.free.intersection(others) == around and _stands_alone(x) and column in x.free
                and lies_across(x, column) for x in found)
    return around if alike else None


def _stands_alone(x: Reduce) -> bool:
    """Whether all reductions inside of x can be finished before it."""
    return all(y.free.isdisjoint(x.indices) for y in parts(x.body, Reduce))


def is_across(x: Reduce, index: Index) -> bool:
    """Whether neighbours in `index` are contiguous in most of what x reads, and neighbours in its own indices are not.
    """
    return index in x.free and not parts(x.body, Reduce) and lies_across(x, index)


def lies_across(x: Reduce, index: Index) -> bool:
    """The same, whether or not other reductions stand inside of x; what a row of results reads once does not count."""
    votes = 0
    for load in parts(x.body, Load):
        if known(index.extent) >= LEAST and index not in load.offset.free:
            continue
        terms = affine(load.offset).terms
        elements = count(*load.offset.free)
        votes += elements * (is_same(terms.get(index, 0), 1) - is_same(terms.get(x.indices[-1], 0), 1))
    return votes > 0


def _tiled(targets: Sequence[Target], reductions: Sequence[Reduce]) -> Nest:
    """The nest; a reduction comes after those inside of it."""
    *others, column = targets[0].indices
    shared = in_columns(targets[0])
    outer = [i for i in others if shared is None or i in shared]
    rows = [i for i in others if i not in outer]
    width = min(TILE, column.extent) if isinstance(column.extent, int) else TILE
    tile = Index("tile", -(-column.extent // width) if isinstance(column.extent, int)
                 else (column.extent + (width - 1)) // width)
    lane = Index("lane", width)
    left = size(column.extent) - tile * size(width)
    whole = isinstance(column.extent, int) and column.extent % width == 0
    lanes = size(width) if whole else Binary("min", size(width), simplify(left))
    moved_to = Substitution({column: simplify(tile * size(width) + lane)})

    top = Scope()
    scopes = [top]
    for index in [*outer, tile]:
        scopes.append(Scope(scopes[-1], index))
    body = scopes[-1]
    numbers = itertools.count()
    buffers: list[Buffer] = []
    sums: dict[Expr, Expr] = {}
    for x in reductions:
        wide = float32 if x.dtype.kind == "f" and x.dtype.bits < 32 else x.dtype
        buffer = Buffer(f"r{len(buffers)}", TensorType(wide, (width,)), "local")
        buffers.append(buffer)
        sum_ = Load(buffer, lane, None)
        sums[x] = sum_ if wide is x.dtype else Cast(sum_, x.dtype)
        moved = moved_to(replace(x.body, sums))
        start = Store(buffer, lane, identity(x.kind, wide))
        body.body.append(Loop(lane, lanes, (start,), "vector"))
        for index, extent, positions in _groups(x):
            inner = [body]
            for k in (*x.indices[:-1], index):
                inner.append(Scope(inner[-1], k))
            deepest = Scope(inner[-1], lane)
            value: Expr = sum_
            for at in positions:
                line = substitute(moved, {x.indices[-1]: at})
                value = Binary(OPERATION[x.kind], value, simplify(Cast(line, wide)))
            placed = Placing(value, numbers=numbers).place(value, deepest)
            inner[-1].body.append(Loop(lane, lanes, (*deepest.body, Store(buffer, lane, placed)), "vector"))
            loops = list(zip((*x.indices[:-1], index), (*x.extents[:-1], extent), inner[1:], inner[:-1], strict=True))
            for k, turns, scope, around in reversed(loops):
                around.body.append(Loop(k, turns, tuple(scope.body)))
    inside = [body]
    for index in rows:
        inside.append(Scope(inside[-1], index))
    last = Scope(inside[-1], lane)
    values = [moved_to(replace(t.value, sums)) for t in targets]
    placing = Placing(*values, numbers=numbers)
    placing.store([Target(t.buffer, t.indices, moved_to(t.offset), value)
                   for t, value in zip(targets, values, strict=True)], last)
    inside[-1].body.append(Loop(lane, lanes, tuple(last.body), "vector"))
    for index, scope, enclosing in reversed(list(zip(rows, inside[1:], inside[:-1], strict=True))):
        enclosing.body.append(Loop(index, size(index.extent), tuple(scope.body)))
    indices = [*outer, tile]
    for depth in range(len(indices), 0, -1):
        scope = scopes.pop()
        grain = grain_of(targets, [*indices[1:], *rows, lane]) if depth == 1 else size(1)
        scopes[-1].body.append(Loop(indices[depth - 1], size(indices[depth - 1].extent), tuple(scope.body),
                                    "parallel" if depth == 1 else "serial", grain))
    return Nest(tuple(top.body), tuple(buffers))


def _groups(x: Reduce) -> list[tuple[Index, Expr, list[Expr]]]:
    """(a loop along the last axis, its turns, the positions of a turn): several lines at once, then those left over."""
    k, extent = x.indices[-1], x.extents[-1]
    bound = k.extent // LINES if isinstance(k.extent, int) else k.extent
    if len(walk(x.body)) > SIMPLE or (isinstance(bound, int) and bound == 0):
        return [(k, extent, [k])]
    turn, rest = Index(k.name, bound), Index(k.name + "_left", LINES)
    turns, left = (simplify(Binary(op, extent, size(LINES))) for op in ("//", "%"))
    groups: list[tuple[Index, Expr, list[Expr]]] = [(turn, turns, [turn * size(LINES) + size(n) for n in range(LINES)])]
    return groups if left is size(0) else [*groups, (rest, left, [turns * size(LINES) + rest])]
