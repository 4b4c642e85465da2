"""Elements -> a nest: which loops there are, what is computed at which of them, which run in parallel.

Every sub-expression is computed in the outermost loop that has all indices it depends on, once, and named if it is
read more than once; reductions become loops of their own at that place.  So a softmax over rows comes out as one
parallel loop over the rows with three loops inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.loops.cache_rows import kept_rows
from tenon.loops.compute_at import ComputeAt, LoopScope
from tenon.loops.expressions import (
    Binary,
    Const,
    Expr,
    Index,
    Local,
    identity,
    size,
)
from tenon.loops.loop_ir import Block, Contraction, Let, Loop, Nest, Store
from tenon.loops.store_target import WHOLE, StoreTarget, grain_of

MIN_PARALLEL_ITERATIONS = 16  # iterations of the parallel loop that keep all threads busy


def product_nest(targets: Sequence[StoreTarget]) -> Nest | None:
    """The nest of targets that are elementwise operations on the result of one product."""
    found = targets[0].product
    if found is None:
        return None
    top = LoopScope()
    total = Local("total", found.sum.dtype)
    top.known[found.sum] = total
    ComputeAt(*(t.value for t in targets)).store(targets, top)
    return Nest((Contraction(found.batch, found.rows, found.columns, found.sum.indices, found.left, found.right, total,
                             tuple(top.body), chunk=next((t.chunk for t in targets if t.chunk), None)),))


def plain_nest(targets: Sequence[StoreTarget]) -> Nest:
    """A nest of plain loops."""
    loops = max((t.indices for t in targets), key=len)
    kept = kept_rows(targets, loops)
    placing = ComputeAt(*(t.value for t in targets), kept=kept)
    top = LoopScope()
    scopes = [top]
    for depth in range(len(loops) + 1):
        if depth:
            scopes.append(LoopScope(scopes[-1], loops[depth - 1]))
        if depth == 1:
            scopes[-1].body += [statement for t in targets if t.combine for statement in cleared(t)]
        placing.store([t for t in targets if len(t.indices) == depth], scopes[-1])
    extents = next(t.iterations() for t in targets if t.indices == loops)
    for depth in range(len(loops), 0, -1):
        inner = scopes.pop()
        kind = "parallel" if depth == 1 else "serial"
        grain = grain_of(targets, loops[1:]) if depth == 1 else size(1)
        scopes[-1].body.append(Loop(loops[depth - 1], extents[depth - 1], tuple(inner.body), kind, grain))
    return Nest(_with_more_iterations(tuple(top.body), targets, loops), tuple(placing.filled))


def cleared(target: StoreTarget) -> Block:
    """Loops that start the elements of a combining target in this iteration of the outermost loop."""
    assert target.combine is not None
    body: Block = (Store(target.buffer, target.offset, identity(target.combine, target.buffer.type.dtype)),)
    for index in reversed(target.indices[1:]):
        if index in target.offset.free:
            body = (Loop(index, size(index.extent), body),)
    return body


def _with_more_iterations(body: Block, targets: Sequence[StoreTarget], loops: Sequence[Index]) -> Block:
    """The parallel loop over several indices at once, where the outermost one alone would leave threads idle."""
    match body:
        case (Loop(kind="parallel", index=Index(extent=int() as iterations), body=(Loop() as inner,)) as outer,):
            each = inner.index.extent
            if iterations >= MIN_PARALLEL_ITERATIONS or not isinstance(each, int) or inner.extent is not size(each):
                return body
            grain = grain_of(targets, loops[2:])
            if not isinstance(grain, Const):
                return (_joined(outer, inner, each, grain),)
            if grain.value >= iterations * each:
                return body             # too little work for a second thread
            if any(isinstance(x, Loop) for x in inner.body):
                return (_joined(outer, inner, each, grain),)
            return (_in_pieces(outer, inner, each, int(grain.value)),)
    return body


def _joined(outer: Loop, inner: Loop, each: int, grain: Expr) -> Loop:
    """One loop in place of two."""
    both = Index(f"{outer.index.name}_{inner.index.name}", outer.index.extent * each)
    parts = Let(outer.index, both // size(each)), Let(inner.index, both % size(each))
    return Loop(both, size(both.extent), (*parts, *inner.body), "parallel", grain)


def _in_pieces(outer: Loop, inner: Loop, each: int, grain: int) -> Loop:
    """One loop over pieces of all iterations of the inner one, which are long enough for vectors."""
    least = -(-each // grain)
    equal = next((n for n in range(least, 2 * least) if each % (n * WHOLE) == 0), least)
    length = -(-each // (equal * WHOLE)) * WHOLE
    pieces = -(-each // length)
    both = Index(f"{outer.index.name}_{inner.index.name}", outer.index.extent * pieces)
    first = both % size(pieces) * size(length)
    lane = Index(f"{inner.index.name}_lane", length)
    iterations = size(length) if each % length == 0 else Binary("min", size(length), size(each) - first)
    body = Loop(lane, iterations, (Let(inner.index, first + lane), *inner.body))
    return Loop(both, size(both.extent), (Let(outer.index, both // size(pieces)), body), "parallel")
