"""Loads that run along another loop than the stores -> squares of memory, copied line by line and transposed.

    for i: for j: out[i, j] = x[j, i]       ->      for square (i, j):
                                                        for jj: for ii: local[jj, ii] = x[j + jj, i + ii]
                                                        local = transpose(local)
                                                        for ii: for jj: out[i + ii, j + jj] = local[ii, jj]

Both memories are gone through along their lines; the square, which stays in L1, is transposed in registers.
Processors do not foresee which lines come next, of many pieces: the same of the next square are asked for, and those
that this one will write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tenon.loops.affine import affine, is_same
from tenon.loops.binders import fresh, names_in
from tenon.loops.compute_at import ComputeAt, LoopScope
from tenon.loops.cost import count
from tenon.loops.expressions import Binary, Buffer, Expr, Index, Load, Reduce, size
from tenon.loops.loop_ir import Loop, Nest, Prefetch, Store, TransposeTile
from tenon.loops.simplify_expressions import simplify, substitute
from tenon.loops.store_target import StoreTarget, grain_of
from tenon.loops.traversal import replace, walk
from tenon.target import LINE_BYTES
from tenon.types import TensorType

TILE_SIDE = 32          # of a square
MIN_TILED_ITERATIONS = 8  # iterations of a loop that is worth cutting
MIN_TILED_ELEMENTS = 4096   # elements that are


def transposed_nest(targets: Sequence[StoreTarget]) -> Nest | None:
    """The nest, if all targets have the same loops and some of what they read runs along another loop."""
    loops = targets[0].indices
    if len(loops) < 2 or any(t.indices != loops or t.combine for t in targets) or count(*loops) < MIN_TILED_ELEMENTS:
        return None
    parts = walk(*(t.value for t in targets))
    if any(isinstance(x, Reduce) for x in parts):
        return None
    along = {x: _line(x, loops) for x in parts if isinstance(x, Load)}
    lines = [i for i in along.values() if i is not None]
    if not lines or count(lines[0]) < MIN_TILED_ITERATIONS or count(loops[-1]) < MIN_TILED_ITERATIONS:
        return None
    return _in_squares(targets, lines[0], [x for x, line in along.items() if line is lines[0]])


def _line(x: Load, loops: Sequence[Index]) -> Index | None:
    """The loop, other than the innermost, along which x is read element by element; None if there is none."""
    terms = affine(x.offset).terms
    if x.mask is not None or not all(isinstance(atom, Index) for atom in terms):
        return None
    if loops[-1] not in terms or is_same(terms[loops[-1]], 1):
        return None
    return next((i for i in loops[:-1] if is_same(terms.get(i, 0), 1)), None)


def _in_squares(targets: Sequence[StoreTarget], line: Index, transposed: Sequence[Load]) -> Nest:
    *others, column = (i for i in targets[0].indices if i is not line)
    taken = names_in(*targets[0].indices)
    tiles = [fresh(i.name + "_tile", (i.extent + (TILE_SIDE - 1)) // TILE_SIDE, taken) for i in (line, column)]
    inside = [fresh(i.name + "_in", TILE_SIDE, taken) for i in (line, column)]
    iterations = [_iterations(i, tile) for i, tile in zip((line, column), tiles, strict=True)]
    at: dict[Index, Expr] = {i: simplify(tile * size(TILE_SIDE) + within)
                             for i, tile, within in zip((line, column), tiles, inside, strict=True)}
    around = [*others, *tiles]
    scopes = [LoopScope()]
    for index in around:
        scopes.append(LoopScope(scopes[-1], index))
    square = scopes[-1]
    place, transposed_place = (simplify(i * size(TILE_SIDE) + k) for i, k in (inside[::-1], inside))
    buffers = [Buffer(f"square{n}", TensorType(x.dtype, (TILE_SIDE, TILE_SIDE)), "local")
               for n, x in enumerate(transposed)]
    row_at = {**at, line: tiles[0] * size(TILE_SIDE) + inside[1]}     # of results, where one copies one of columns
    fetches = [y for t in targets for y in _fetches(t.buffer, t.offset, row_at, column, tiles[1] * size(TILE_SIDE))]
    for buffer, x in zip(buffers, transposed, strict=True):
        copy = Store(buffer, place, Load(x.buffer, substitute(x.offset, at), None))
        fetches += _fetches(x.buffer, x.offset, at, line, tiles[0] * size(TILE_SIDE) + TILE_SIDE)
        fetched = fetches if _are_apart(x, column) else ()
        line_copied = Loop(inside[0], iterations[0], (copy,), "vector")
        square.body.append(Loop(inside[1], iterations[1], (*fetched, line_copied)))
        square.body.append(TransposeTile(buffer, _most(column), _most(line)))
        fetches = []
    read: dict[Expr, Expr] = {x: Load(b, transposed_place, None) for x, b in zip(transposed, buffers, strict=True)}
    row = LoopScope(square, inside[0])
    cell = LoopScope(row, inside[1])
    moved = [StoreTarget(t.buffer, t.indices, substitute(t.offset, at), substitute(replace(t.value, read), at))
             for t in targets]
    ComputeAt(*(t.value for t in moved)).store(moved, cell)
    row.body.append(Loop(inside[1], iterations[1], tuple(cell.body), "vector"))
    square.body.append(Loop(inside[0], iterations[0], tuple(row.body)))
    for depth in range(len(around), 0, -1):
        body = tuple(scopes.pop().body)
        grain = grain_of(targets, [*around[1:], *inside]) if depth == 1 else size(1)
        index = around[depth - 1]
        scopes[-1].body.append(Loop(index, size(index.extent), body, "parallel" if depth == 1 else "serial", grain))
    return Nest(tuple(scopes[0].body), tuple(buffers))


def _fetches(buffer: Buffer, offset: Expr, at: Mapping[Index, Expr], along: Index, first: Expr) -> Iterator[Prefetch]:
    """The lines of memory in which a run of a square's elements lies, from `first` on along an index."""
    if all(isinstance(atom, Index) for atom in affine(offset).terms):
        step = max(LINE_BYTES // buffer.type.dtype.itemsize, 1)
        for place in dict.fromkeys([*range(0, TILE_SIDE, step), TILE_SIDE - 1]):
            yield Prefetch(buffer, simplify(substitute(offset, {**at, along: first + size(place)})))


def _are_apart(x: Load, column: Index) -> bool:
    """Whether the lines that a square reads are no neighbours, which would be foreseen as one run of memory."""
    apart = affine(x.offset).terms.get(column, 0)
    return not isinstance(apart, int) or abs(apart) > TILE_SIDE


def _most(index: Index) -> int:
    """How many iterations of a loop are in a square at most, or a power of two above."""
    return min(TILE_SIDE, 1 << (index.extent - 1).bit_length()) if isinstance(index.extent, int) else TILE_SIDE


def _iterations(index: Index, tile: Index) -> Expr:
    """How many iterations of a loop are in a square."""
    if isinstance(index.extent, int) and index.extent % TILE_SIDE == 0:
        return size(TILE_SIDE)
    return Binary("min", size(TILE_SIDE), simplify(size(index.extent) - tile * size(TILE_SIDE)))
