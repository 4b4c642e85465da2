"""Targets -> a nest: which loops there are, what is computed at which of them, which run in parallel.

Every sub-expression is computed in the outermost loop that has all indices it depends on, once, and named if it is
read more than once; reductions become loops of their own at that place.  So a softmax over rows comes out as one
parallel loop over the rows with three loops inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenon.loops.columns import column_nest
from tenon.loops.contraction import Product, as_product
from tenon.loops.expressions import (
    CheckedIndex,
    Const,
    Expr,
    Index,
    Local,
    Reduce,
    size,
    walk,
)
from tenon.loops.ir import Block, Contraction, Let, Loop, Nest, Store
from tenon.loops.keeping import kept_rows
from tenon.loops.placing import Placing, Scope
from tenon.loops.simplify import simplify, substitute
from tenon.loops.target import Target, grain_of

ENOUGH = 16         # turns of the parallel loop that keep all threads busy


def schedule(targets: Sequence[Target]) -> Nest:
    """The nest that stores the targets, whose loops are a prefix of the longest list of loops among them."""
    targets = [with_flat_reductions(target) for target in _with_flat_loops(targets)]
    return _contraction(targets[0]) or column_nest(targets) or _loops(targets)


def alone(target: Target) -> bool:
    """Whether the target is a contraction, and so needs a nest of its own."""
    return product_of(target) is not None


def product_of(target: Target) -> Product | None:
    """The product that the target is, under elementwise operations on its result; or None."""
    reductions = [x for x in walk(target.value) if isinstance(x, Reduce)]
    if len(reductions) != 1 or not target.indices or reductions[0].free != frozenset(target.indices):
        return None
    checked = any(isinstance(x, CheckedIndex) for x in walk(target.value))
    return None if checked else as_product(reductions[0], target.indices)


def _contraction(target: Target) -> Nest | None:
    """The nest of a target that is one product, and elementwise operations on its result."""
    found = product_of(target)
    if found is None:
        return None
    placing, top = Placing(target.value), Scope()
    total = Local("total", found.sum.dtype)
    top.known[found.sum] = total
    value = placing.place(target.value, top)
    top.body.append(Store(target.buffer, target.offset, value))
    return Nest((Contraction(found.batch, found.rows, found.columns, found.sum.indices, found.left, found.right, total,
                             tuple(top.body)),))


def _loops(targets: Sequence[Target]) -> Nest:
    """A nest of plain loops."""
    loops = max((t.indices for t in targets), key=len)
    kept = kept_rows(targets, loops)
    placing = Placing(*(t.value for t in targets), kept=kept)
    top = Scope()
    scopes = [top]
    for depth in range(len(loops) + 1):
        if depth:
            scopes.append(Scope(scopes[-1], loops[depth - 1]))
        placing.store([t for t in targets if len(t.indices) == depth], scopes[-1])
    for depth in range(len(loops), 0, -1):
        inner = scopes.pop()
        kind = "parallel" if depth == 1 else "serial"
        grain = grain_of(targets, loops[1:]) if depth == 1 else size(1)
        scopes[-1].body.append(Loop(loops[depth - 1], size(loops[depth - 1].extent), tuple(inner.body), kind, grain))
    return Nest(_with_more_turns(tuple(top.body), targets, loops), tuple(placing.filled))


def _with_more_turns(body: Block, targets: Sequence[Target], loops: Sequence[Index]) -> Block:
    """The parallel loop over several indices at once, where the outermost one alone would leave threads idle."""
    match body:
        case (Loop(kind="parallel", index=Index(extent=int() as turns), body=(Loop() as inner,)) as outer,):
            each = inner.index.extent
            if turns >= ENOUGH or not isinstance(each, int) or inner.extent is not size(each):
                return body
            grain = grain_of(targets, loops[2:])
            if isinstance(grain, Const) and grain.value >= turns * each:
                return body             # too little work for a second thread
            both = Index(f"{outer.index.name}_{inner.index.name}", turns * each)
            parts = Let(outer.index, both // size(each)), Let(inner.index, both % size(each))
            return (Loop(both, size(both.extent), (*parts, *inner.body), "parallel", grain),)
    return body


# ---------------------------------------------------------------- fewer, longer loops

def _with_flat_loops(targets: Sequence[Target]) -> list[Target]:
    """Merge neighbouring loops wherever only the flat position matters."""
    targets = list(targets)
    if len({t.indices for t in targets}) > 1:
        return targets
    place = len(targets[0].indices) - 2
    while place >= 0:
        outer, inner = targets[0].indices[place:place + 2]
        flat = Index(outer.name, outer.extent * inner.extent)
        merged = [_merged(t, outer, inner, flat) for t in targets]
        if all(t is not None for t in merged):
            targets = [t for t in merged if t is not None]
        place -= 1
    return targets


def _merged(target: Target, outer: Index, inner: Index, flat: Index) -> Target | None:
    position, value = (merge(x, outer, inner, flat) for x in (target.offset, target.value))
    if position is None or value is None:
        return None
    indices = tuple(flat if index is outer else index for index in target.indices if index is not inner)
    return replace(target, indices=indices, offset=position, value=value)


def merge(x: Expr, outer: Index, inner: Index, flat: Index) -> Expr | None:
    """`x` in terms of flat = outer * (extent of inner) + inner, or None if it depends on them in another way."""
    temporary = Index("flat " + flat.name, flat.extent)
    found = substitute(x, {inner: temporary - outer * size(inner.extent)})
    return None if outer in found.free else substitute(found, {temporary: flat})


def with_flat_reductions(target: Target) -> Target:
    """Merge neighbouring indices of reductions in the same way."""
    done: dict[Expr, Expr] = {}
    for x in walk(target.value):
        parts = tuple(done[child] for child in x.children())
        same = x if parts == x.children() else simplify(x.rebuilt(parts))
        done[x] = _flat_reduction(same) if isinstance(same, Reduce) else same
    return replace(target, value=done[target.value])


def _flat_reduction(x: Reduce) -> Reduce:
    place = len(x.indices) - 2
    while place >= 0:
        outer, inner = x.indices[place:place + 2]
        flat = Index(outer.name, outer.extent * inner.extent)
        body = merge(x.body, outer, inner, flat)
        if body is not None and x.extents == tuple(size(index.extent) for index in x.indices):
            indices = (*x.indices[:place], flat, *x.indices[place + 2:])
            x = Reduce(x.kind, indices, body, tuple(size(index.extent) for index in indices))
        place -= 1
    return x
