"""Sums over the rows of what is computed row by row -> partial sums of chunks of rows, added up in the same loops.

    for i: m = max(x[i, k] for k); for j: out[i, j] = x[i, j] - m
    for j: sum[j] = add(x[i, j] - max(x[i, k] for k) for i)

    for chunk:                                              for j: sum[j] = add(part[chunk, j] for chunk)
        for i in the chunk:
            m = max(x[i, k] for k)
            for j: out[i, j] = x[i, j] - m; part[chunk, j] += x[i, j] - m

So the gradients of a norm, one of them by rows and two by columns, are one pass over memory.  How rows are cut depends
on sizes only, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.dims.symbolic_dim import Dim, product
from tenon.loops.collapse_loops import with_flat_loops
from tenon.loops.column_reductions import lies_across
from tenon.loops.cost import known
from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Binary, Buffer, Cast, Expr, Index, Load, Reduce, size
from tenon.loops.loop_context import LoopContext, Temporary
from tenon.loops.rfactor import accumulated, whole_iterations
from tenon.loops.simplify_expressions import Substitution, simplify, substitute
from tenon.loops.store_target import StoreTarget, levels
from tenon.loops.traversal import parts, replace
from tenon.records import dataclass
from tenon.records import replace as changed
from tenon.types import TensorType

ROW_CHUNKS = 64         # of rows, where there are enough
MIN_CHUNK_ROWS = 16  # rows of a chunk
Space = tuple[Dim, ...]


@dataclass(frozen=True)
class Along:
    """Targets with the same loops, and those of sums that are computed in these loops too."""

    rows: tuple[StoreTarget, ...]
    sums: tuple[StoreTarget, ...]


def opened(targets: Sequence[StoreTarget]) -> list[StoreTarget]:
    """The targets as they are computed: a sum that goes along with rows in their loops."""
    found = []
    sums = {t for along in _found(targets) for t in along.sums if may_go_along(t)}
    for target in targets:
        if target in sums:
            found += [StoreTarget(target.buffer, (*x.indices, *target.indices), target.offset, x.body)
                      for x in _outermost(target.value)]
        else:
            found.append(target)
    return found


def along_rows(targets: Sequence[StoreTarget], context: LoopContext) -> list[StoreTarget]:
    """The targets, rows and the sums along them cut into chunks of rows."""
    result = list(targets)
    for found in _found(targets):
        along = changed(found, sums=tuple(filter(may_go_along, found.sums)))
        if not along.sums:
            continue
        taken = {*along.rows, *along.sums}
        result = [*_together(along, context.temporary), *(t for t in result if t not in taken)]
    return result


# ---------------------------------------------------------------- which sums go along with which rows

def _found(targets: Sequence[StoreTarget]) -> list[Along]:
    sums, level = {t: _space(t) for t in targets}, levels(targets)
    found = []
    for first, space in ((t, space) for t, space in sums.items() if space is not None):
        same = [t for t in targets if level[t] == level[first]]
        rows = [t for t in same if sums[t] is None and t.indices and _shape(t) == space[:len(t.indices)]]
        whole = [t for t in rows if len(t.indices) == len(space)]
        read = {b for t in whole for b in t.reads() if known(b.elements) >= known(product(space))}
        along = [t for t in same if sums[t] == space and t.reads() & read]
        if first in along[:1] and all(t.indices == whole[0].indices[:len(t.indices)] for t in rows):
            found.append(Along(tuple(rows), tuple(along)))
    return found


def may_go_along(target: StoreTarget) -> bool:
    """Whether every element that its sums add up is known once its row has been gone through.

    One that reads a reduction over all rows, as argmin reads the least, depends on later iterations of the same loop: a
    dependence that prevents fusion (Kennedy and Allen, section 6.2.5).  What stands outside of all loops comes first.
    """
    return all(not y.free or not y.free.isdisjoint(x.indices)
               for x in _outermost(target.value) for y in parts(x.body, Reduce))


def _space(target: StoreTarget) -> Space | None:
    """The sizes of the loops over all that the sums in a target read, rows first; None if it is no sum over rows."""
    sums = _outermost(target.value)
    if not sums or not target.indices or any(x.free != frozenset(target.indices) for x in sums):
        return None
    if len({x.indices for x in sums}) > 1 or not all(lies_across(x, target.indices[-1]) for x in sums):
        return None
    if any(x.extents != whole_iterations(x.indices) for x in sums):
        return None
    space = (*(k.extent for k in sums[0].indices), *_shape(target))
    rows = known(product(k.extent for k in sums[0].indices))
    return space if rows >= 2 * MIN_CHUNK_ROWS else None


def _shape(target: StoreTarget) -> Space:
    return tuple(index.extent for index in target.indices)


def _outermost(value: Expr) -> list[Reduce]:
    """The reductions that are inside of no other one."""
    listed = parts(value, Reduce)
    inside = {y for x in listed for y in parts(x.body, Reduce)}
    return [x for x in listed if x not in inside]


# ---------------------------------------------------------------- one nest of them

def _together(along: Along, temporary: Temporary) -> list[StoreTarget]:
    """The targets of both, in chunks of rows; then what the sums are in terms of their parts."""
    loops = max((t.indices for t in along.rows), key=len)
    sums = [(t, x) for t in along.sums for x in _outermost(t.value)]
    partial = [_in_loops(t, x, loops) for t, x in sums]
    flat = with_flat_loops([*along.rows, *partial])
    rows, partial = flat[:len(along.rows)], flat[len(along.rows):]
    first = rows[0].indices[0]
    length = max(MIN_CHUNK_ROWS, -(-first.extent // ROW_CHUNKS)) if isinstance(first.extent, int) else ROW_CHUNKS
    chunk, within = Index("chunk", (first.extent + (length - 1)) // length), Index(first.name, length)
    iterations: Expr = size(length)
    if not isinstance(first.extent, int) or first.extent % length:
        iterations = Binary("min", iterations, simplify(size(first.extent) - chunk * size(length)))
    cut_up = Substitution({first: simplify(chunk * size(length) + within)})

    def cut(t: StoreTarget) -> StoreTarget:
        indices = (chunk, within, *t.indices[1:])
        extents = (size(chunk.extent), iterations, *(size(index.extent) for index in indices[2:]))
        return changed(t, indices=indices, extents=extents, offset=cut_up(t.offset),
                       value=cut_up(t.value))

    parts: dict[tuple[StoreTarget, Expr], Buffer] = {}
    for (t, x), p in zip(sums, partial, strict=True):
        parts[t, x] = temporary(TensorType(accumulated(x.dtype), (chunk.extent, *_shape(t))))
        place = chunk * size(product(_shape(t))) + p.offset
        rows.append(changed(p, buffer=parts[t, x], offset=simplify(place)))
    return [*map(cut, rows), *(_summed(t, chunk, parts) for t in along.sums)]


def _in_loops(target: StoreTarget, x: Reduce, loops: tuple[Index, ...]) -> StoreTarget:
    """What x sums up, combined in these loops; the offset is that of the result."""
    values: dict[Index, Expr] = dict(zip((*x.indices, *target.indices), loops, strict=True))
    position = offset(_shape(target), loops[len(x.indices):])
    value = simplify(Cast(substitute(x.body, values), accumulated(x.dtype)))
    return StoreTarget(target.buffer, loops, position, value, x.kind)


def _summed(target: StoreTarget, chunk: Index, parts: dict[tuple[StoreTarget, Expr], Buffer]) -> StoreTarget:
    """The target, computed of the partial sums."""
    values: dict[Expr, Expr] = {}
    for (of, x), buffer in parts.items():
        if of is target:
            assert isinstance(x, Reduce)
            total = Index(x.indices[0].name, chunk.extent)
            load = Load(buffer, offset(buffer.type.shape, (total, *target.indices)), None)
            values[x] = simplify(Cast(Reduce(x.kind, (total,), load, (size(total.extent),)), x.dtype))
    return changed(target, value=simplify(replace(target.value, values)))
