"""A long reduction -> partial results, and their combination: of lines, of folded columns, and of chunks.

    out[j] = sum(x[k, j] for k < N)    ->    part[c, j] = sum(x[c*CHUNK + k, j] for k < min(CHUNK, N - c*CHUNK))
                                             out[j] = sum(part[c, j] for c)

Chunks of a reduction with few results are what threads share.  How it is cut depends on sizes only, so the result does
not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.dims.symbolic_dim import Dim, product
from tenon.loops.column_reductions import TILE_RESULTS, is_across
from tenon.loops.expressions import OPERATION, Binary, Cast, Expr, Index, Reduce, size
from tenon.loops.loop_context import LoopContext, Temporary
from tenon.loops.rfactor import Factoring, may_be_factored, reduced, rfactor
from tenon.loops.simplify_expressions import simplify
from tenon.loops.split_div_mod_loops import with_split_reductions
from tenon.loops.store_target import StoreTarget
from tenon.loops.strip_mining import Strips, is_partition
from tenon.loops.traversal import parts
from tenon.loops.traversal import replace as replaced
from tenon.loops.two_stage_reductions import lines_first
from tenon.loops.widen_narrow_reductions import folded
from tenon.records import replace

CHUNK_ELEMENTS = 16384  # elements of a chunk
MIN_CHUNKS = 8          # chunks; less work than this is over sooner than threads have met
MIN_PARALLEL_RESULTS = 16  # results that keep the threads busy by themselves, when they are reduced one by one
Policy = Callable[[Reduce, Sequence[Index]], Factoring | None]


def in_parts(target: StoreTarget, context: LoopContext) -> list[StoreTarget]:
    """The target, after targets for the partial results of its reductions; a product has ways of its own."""
    return [target] if target.product is not None else _in_parts(with_split_reductions(target), context.temporary)


def _in_parts(target: StoreTarget, temporary: Temporary) -> list[StoreTarget]:
    for policy in (lines_first, folded):
        if len(found := _parted(target, policy, temporary)) > 1:
            return [part for each in found for part in _in_parts(each, temporary)]
    return _parted(target, in_chunks, temporary)


def _parted(target: StoreTarget, policy: Policy, temporary: Temporary) -> list[StoreTarget]:
    """The target, after those for the partial results that a policy finds."""
    if target.combine or target.extents:
        return [target]
    before: list[StoreTarget] = []
    values: dict[Expr, Expr] = {}
    listed = parts(target.value, Reduce)
    inside = {y for x in listed for y in parts(x.body, Reduce)}
    for x in listed:
        plan = None if x in inside or not may_be_factored(x, target.indices) else policy(x, target.indices)
        if plan is not None:
            partial, total = rfactor(x, plan, temporary)
            if plan.left is not None:
                total = Binary(OPERATION[x.kind], total, reduced(x, (plan.left[0],), plan.left[1]))
            before.append(partial)
            values[x] = simplify(Cast(total, x.dtype))
    return [*before, replace(target, value=simplify(replaced(target.value, values)))] if before else [target]


def in_chunks(x: Reduce, indices: Sequence[Index]) -> Factoring | None:
    """Chunks of the first loop, where there are few results; None if x is better left as it is."""
    results = tuple(index for index in indices if index in x.free)
    count = product(index.extent for index in results)
    side_by_side = TILE_RESULTS if results and is_across(x, results[-1]) else 1
    if not isinstance(count, int) or count >= MIN_PARALLEL_RESULTS * side_by_side:
        return None
    first, *rest = x.indices
    inner = product(index.extent for index in rest) * count
    length = max(1, CHUNK_ELEMENTS // max(1, inner)) if isinstance(inner, int) else 16
    chunks: Dim = (first.extent + (length - 1)) // length
    if isinstance(chunks, int) and chunks < MIN_CHUNKS:
        return None
    assert is_partition(first.extent, [Strips(0, chunks, length)])
    chunk, within = Index("chunk", chunks), Index(first.name, length)
    iterations: Expr = size(length)
    if not isinstance(first.extent, int) or first.extent % length:
        iterations = Binary("min", iterations, simplify(size(first.extent) - chunk * size(length)))
    return Factoring((chunk,), (within, *rest), (chunk, *results), {first: chunk * size(length) + within},
                     (iterations, *x.extents[1:]), (Index(first.name, chunks),))
