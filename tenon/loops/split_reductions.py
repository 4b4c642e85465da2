"""A long reduction -> partial results, and their combination: of lines, of folded columns, and of chunks.

    out[j] = sum(x[k, j] for k < N)    ->    part[c, j] = sum(x[c*CHUNK + k, j] for k < min(CHUNK, N - c*CHUNK))
                                             out[j] = sum(part[c, j] for c)

Chunks of a reduction with few results are what threads share.  How it is cut depends on sizes only, so the result does
not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.dims import Dim, product
from tenon.loops.column_reductions import TILE, is_across
from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Binary, Cast, Expr, Index, Load, Reduce, size
from tenon.loops.loop_context import LoopContext, Temporary
from tenon.loops.simplify_expressions import simplify, substitute
from tenon.loops.split_div_mod_loops import with_split_reductions
from tenon.loops.store_target import StoreTarget
from tenon.loops.strip_mining import Strips, is_partition, may_be_factored
from tenon.loops.traversal import parts
from tenon.loops.traversal import replace as replaced
from tenon.loops.two_stage_reductions import lines_first
from tenon.loops.widen_narrow_reductions import folded
from tenon.records import replace
from tenon.types import TensorType, float32

CHUNK = 16384           # elements of a chunk
FEWEST = 8              # chunks; less work than this is over sooner than threads have met
MIN_PARALLEL_RESULTS = 16  # results that keep the threads busy by themselves, when they are reduced one by one
Way = Callable[[Reduce, Sequence[Index], Temporary], tuple[StoreTarget, Expr] | None]


def in_parts(target: StoreTarget, context: LoopContext) -> list[StoreTarget]:
    """The target, after targets for the partial results of its reductions; a product has ways of its own."""
    return [target] if target.product is not None else _in_parts(with_split_reductions(target), context.temporary)


def _in_parts(target: StoreTarget, temporary: Temporary) -> list[StoreTarget]:
    for way in (lines_first, folded):
        if len(found := _parted(target, way, temporary)) > 1:
            return [part for each in found for part in _in_parts(each, temporary)]
    return _parted(target, _cut, temporary)


def _parted(target: StoreTarget, way: Way, temporary: Temporary) -> list[StoreTarget]:
    """The target, after those for the partial results that this way finds."""
    if target.combine or target.extents:
        return [target]
    before: list[StoreTarget] = []
    values: dict[Expr, Expr] = {}
    listed = parts(target.value, Reduce)
    inside = {y for x in listed for y in parts(x.body, Reduce)}
    for x in listed:
        if x in inside or not may_be_factored(x, target.indices):
            continue
        if (found := way(x, target.indices, temporary)) is not None:
            before.append(found[0])
            values[x] = found[1]
    if not before:
        return [target]
    return [*before, replace(target, value=simplify(replaced(target.value, values)))]


def _cut(x: Reduce, indices: Sequence[Index], temporary: Temporary) -> tuple[StoreTarget, Expr] | None:
    """(the target of the partial results, what x is in terms of them), or None if x is better left as it is."""
    results = tuple(index for index in indices if index in x.free)
    count = product(index.extent for index in results)
    side_by_side = TILE if results and is_across(x, results[-1]) else 1
    if not isinstance(count, int) or count >= MIN_PARALLEL_RESULTS * side_by_side:
        return None
    first, *rest = x.indices
    inner = product(index.extent for index in rest) * count
    length = max(1, CHUNK // max(1, inner)) if isinstance(inner, int) else 16
    chunks: Dim = (first.extent + (length - 1)) // length
    if isinstance(chunks, int) and chunks < FEWEST:
        return None
    assert is_partition(first.extent, [Strips(0, chunks, length)])
    chunk, within = Index("chunk", chunks), Index(first.name, length)
    position = chunk * size(length) + within
    wide = float32 if x.dtype.kind == "f" and x.dtype.bits < 32 else x.dtype
    buffer = temporary(TensorType(wide, (chunks, *(index.extent for index in results))))
    body = simplify(Cast(substitute(x.body, {first: position}), wide))
    left: Expr = size(length)
    if not isinstance(first.extent, int) or first.extent % length:
        left = Binary("min", left, simplify(size(first.extent) - chunk * size(length)))
    partial = Reduce(x.kind, (within, *rest), body, (left, *x.extents[1:]))
    place = offset(buffer.type.shape, (chunk, *results))
    target = StoreTarget(buffer, (chunk, *results), place, partial)
    total = Index(first.name, chunks)
    load = Load(buffer, offset(buffer.type.shape, (total, *results)), None)
    return target, simplify(Cast(Reduce(x.kind, (total,), load, (size(chunks),)), x.dtype))
